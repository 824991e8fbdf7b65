// expect: ok
// line: 0
// Frozen arguments must not keep the next file from changing them.
export default {
  "mcp.call.before": (input, output) => {
    Object.freeze(output.arguments)
  },
}
