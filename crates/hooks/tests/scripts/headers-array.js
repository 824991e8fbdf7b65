// expect: value
// line: 6
// An array is no map of headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = [["X-A", "a"]]
  },
}
