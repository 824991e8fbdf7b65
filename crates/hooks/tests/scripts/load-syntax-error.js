// expect: load
// line: 6
// Not JavaScript.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = = "a"
  },
}
