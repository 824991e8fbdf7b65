// expect: ok
// line: 0
// It is the hook's own loss.
export default {
  "mcp.call.before": (input, output) => {
    Object.freeze(output)
  },
}
