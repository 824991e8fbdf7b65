// expect: throw
// line: 6
// The prototypes that have no global name count too.
export default {
  "mcp.call.before": (input, output) => {
    Object.getPrototypeOf(async () => {}).constructor = Function
  },
}
