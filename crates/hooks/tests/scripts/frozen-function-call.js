// expect: throw
// line: 6
// The engine may call handlers with it.
export default {
  "mcp.call.before": (input, output) => {
    Function.prototype.call = () => 0
  },
}
