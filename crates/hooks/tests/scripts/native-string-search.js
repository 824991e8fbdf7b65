// expect: late
// line: 0
// A search whose time is the product of both lengths.
export default {
  "mcp.call.before": (input, output) => {
    "a".repeat(200_000).indexOf("a".repeat(100_000) + "b")
  },
}
