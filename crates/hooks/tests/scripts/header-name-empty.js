// expect: value
// line: 6
// A header has a name.
export default {
  "mcp.call.before": (input, output) => {
    output.headers[""] = "a"
  },
}
