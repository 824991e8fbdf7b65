// expect: cpu
// line: 6
// Catastrophic backtracking in replace, with a callback.
export default {
  "mcp.call.before": (input, output) => {
    ("a".repeat(40) + "!").replace(/(?:\w+\s*)+c/g, () => "")
  },
}
