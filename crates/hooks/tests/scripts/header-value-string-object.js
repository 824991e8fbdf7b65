// expect: value
// line: 6
// It looks like a text and is none.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = new String("a")
  },
}
