// expect: ok
// line: 0
// Deleted is left out, as undefined is.
export default {
  "mcp.call.before": (input, output) => {
    delete output.headers
  },
}
