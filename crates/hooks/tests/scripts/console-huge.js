// expect: ok
// line: 0
// Cut off, not refused.
export default {
  "mcp.call.before": (input, output) => {
    console.log("x".repeat(1_000_000))
  },
}
