// expect: ok
// line: 0
// What has been set to null has no members.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = null
    output.headers["X-A"] = "a"
  },
}
