// expect: value
// line: 6
// A Map has no members of its own: its entries would be lost without a word.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = new Map([["X-A", "a"]])
  },
}
