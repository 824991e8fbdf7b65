// expect: value
// line: 6
// A text is no map of headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = "X-A: a"
  },
}
