// expect: throw
// line: 6
// It would make every object a thenable.
export default {
  "mcp.call.before": (input, output) => {
    Object.prototype.then = (resolve) => resolve()
  },
}
