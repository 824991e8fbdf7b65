// expect: stack
// line: 6
// Deep JSON, read.
export default {
  "mcp.call.before": (input, output) => {
    JSON.parse("[".repeat(100_000) + "]".repeat(100_000))
  },
}
