// expect: value
// line: 6
// It is not made a text silently.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = true
  },
}
