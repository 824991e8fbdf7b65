// expect: cpu
// line: 6
// Catastrophic backtracking by way of a back reference.
export default {
  "mcp.call.before": (input, output) => {
    /^(a*)*\1$/.test("a".repeat(40) + "b")
  },
}
