// expect: value
// line: 6
// It is not made a text silently: this would be [object Object].
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = {}
  },
}
