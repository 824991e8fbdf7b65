// expect: throw
// line: 6
// The engine may keep headers in one.
export default {
  "mcp.call.before": (input, output) => {
    Map.prototype.get = () => "forged"
  },
}
