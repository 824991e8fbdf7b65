// expect: memory
// line: 0
// All at once.
export default {
  "mcp.call.before": (input, output) => {
    return "x".repeat(2 ** 29).length
  },
}
