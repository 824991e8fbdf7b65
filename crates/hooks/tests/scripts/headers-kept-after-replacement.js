// expect: reserved
// line: 7
// The map that stands there after a replacement is checked like the first one.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = { "X-A": "a" }
    output.headers.Host = "evil.example"
  },
}
