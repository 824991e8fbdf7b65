// expect: value
// line: 6
// One name has one value.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = ["a", "b"]
  },
}
