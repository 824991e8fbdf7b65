// expect: value
// line: 6
// Longer than any name.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X".repeat(100_000)] = "a"
  },
}
