// expect: memory
// line: 6
// Longer than any head may be.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "a".repeat(10 * 2 ** 20)
  },
}
