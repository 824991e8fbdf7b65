// expect: stack
// line: 6
// A pattern of groups within groups.
export default {
  "mcp.call.before": (input, output) => {
    new RegExp("(?:".repeat(50_000) + ")".repeat(50_000))
  },
}
