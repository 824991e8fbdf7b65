// expect: throw
// line: 6
// The prototypes that have no global name count too: typed arrays.
export default {
  "mcp.call.before": (input, output) => {
    Object.getPrototypeOf(Uint8Array).prototype.set = () => {}
  },
}
