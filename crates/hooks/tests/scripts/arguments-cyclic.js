// expect: value
// line: 0
// JSON has no cycles.
export default {
  "mcp.call.before": (input, output) => {
    output.arguments.a = { again: output.arguments }
  },
}
