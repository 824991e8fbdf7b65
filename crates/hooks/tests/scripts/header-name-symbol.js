// expect: value
// line: 6
// A symbol would be lost without a word.
export default {
  "mcp.call.before": (input, output) => {
    output.headers[Symbol("X-A")] = "a"
  },
}
