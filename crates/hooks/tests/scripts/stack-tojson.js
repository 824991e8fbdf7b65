// expect: stack
// line: 6
// toJSON that writes itself out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = { toJSON() { return JSON.stringify(this) } }
  },
}
