// expect: cpu
// line: 6
// The loop is in toJSON, which runs when the engine writes the meta out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = { toJSON() { for (;;) {} } }
  },
}
