// expect: stack
// line: 6
// toString that needs itself.
export default {
  "mcp.call.before": (input, output) => {
    String({ toString() { return `${this}` } })
  },
}
