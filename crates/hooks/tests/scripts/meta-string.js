// expect: value
// line: 5
// The meta is an object.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = "a"
  },
}
