// expect: load
// line: 0
// A text cannot be called.
export default {
  "mcp.call.before": "output.headers['X-A'] = 'a'",
}
