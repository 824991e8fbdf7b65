// expect: cpu
// line: 6
// Catastrophic backtracking, within one native call.
export default {
  "mcp.call.before": (input, output) => {
    /^(a+)+$/.test("a".repeat(40) + "b")
  },
}
