// expect: value
// line: 6
// It is not made a text silently: 0.1 + 0.2 would be one too.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = 1
  },
}
