// expect: value
// line: 6
// It is not made a text silently, however willing it is.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = { toString: () => "a" }
  },
}
