// expect: late
// line: 0
// Each alternative moves all those before it.
export default {
  "mcp.call.before": (input, output) => {
    new RegExp("a|".repeat(100_000) + "b")
  },
}
