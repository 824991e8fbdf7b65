// expect: memory
// line: 6
// All at once.
export default {
  "mcp.call.before": (input, output) => {
    return "x".repeat(2 ** 29).length
  },
}
