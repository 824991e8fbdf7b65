// expect: stack
// line: 6
// Recursion without an end.
export default {
  "mcp.call.before": (input, output) => {
    (function dive() { return 1 + dive() })()
  },
}
