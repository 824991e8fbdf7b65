// expect: throw
// line: 6
// The engine may use it.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.push = () => 0
  },
}
