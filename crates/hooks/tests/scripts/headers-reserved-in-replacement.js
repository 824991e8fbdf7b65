// expect: reserved
// line: 6
// A new map is checked as a whole.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = { "X-A": "a", Host: "evil.example" }
  },
}
