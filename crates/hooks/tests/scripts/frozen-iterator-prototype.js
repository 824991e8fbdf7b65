// expect: throw
// line: 6
// The prototypes that have no global name count too: iterators.
export default {
  "mcp.call.before": (input, output) => {
    Object.getPrototypeOf(Object.getPrototypeOf([].values())).next = () => ({ done: true })
  },
}
