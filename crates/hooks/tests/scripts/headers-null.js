// expect: ok
// line: 0
// Nothing is left: the call goes out without any header of its configuration.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = null
  },
}
