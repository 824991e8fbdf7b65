// expect: throw
// line: 6
// Cut off before it reaches a model.
export default {
  "mcp.call.before": (input, output) => {
    throw new Error("x".repeat(1_000_000))
  },
}
