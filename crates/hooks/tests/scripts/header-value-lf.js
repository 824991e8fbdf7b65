// expect: value
// line: 6
// A value cannot begin another line.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "a\nHost: evil.example"
  },
}
