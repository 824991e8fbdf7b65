// expect: value
// line: 6
// A value cannot begin a request of its own.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "a\r\n\r\nGET / HTTP/1.1"
  },
}
