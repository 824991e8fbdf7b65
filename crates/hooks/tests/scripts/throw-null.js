// expect: memory
// line: 5
// No error, so it knows no line.
export default {
  "mcp.call.before": (input, output) => {
    throw null
  },
}
