// expect: value
// line: 6
// Names are tokens, and cannot hold a line of their own.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A: a\r\nX-B"] = "a"
  },
}
