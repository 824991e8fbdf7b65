// expect: ok
// line: 0
// JSON leaves functions out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = () => 1
  },
}
