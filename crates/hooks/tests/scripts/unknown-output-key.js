// expect: throw
// line: 6
// A part that does not exist would be lost without a word.
export default {
  "mcp.call.before": (input, output) => {
    output.header = { "X-A": "a" }
  },
}
