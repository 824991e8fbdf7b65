// expect: throw
// line: 6
// Names may be checked with it.
export default {
  "mcp.call.before": (input, output) => {
    RegExp.prototype.exec = () => null
  },
}
