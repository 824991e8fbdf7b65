// expect: ok
// line: 0
// Left out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = null
  },
}
