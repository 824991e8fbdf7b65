// expect: throw
// line: 6
// toJSON runs when the engine writes the meta out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = { toJSON() { throw new Error("from toJSON") } }
  },
}
