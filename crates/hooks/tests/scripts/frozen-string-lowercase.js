// expect: throw
// line: 6
// Names of headers are compared with it.
export default {
  "mcp.call.before": (input, output) => {
    String.prototype.toLowerCase = () => "x-harmless"
  },
}
