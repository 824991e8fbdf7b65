// expect: ok
// line: 0
// JSON leaves symbols out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta[Symbol("a")] = 1
  },
}
