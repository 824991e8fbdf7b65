// expect: value
// line: 5
// Arguments are an object.
export default {
  "mcp.call.before": (input, output) => {
    output.arguments = "a"
  },
}
