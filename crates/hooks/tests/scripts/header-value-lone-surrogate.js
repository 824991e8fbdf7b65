// expect: value
// line: 6
// It has no UTF-8.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "a\ud800"
  },
}
