// expect: throw
// line: 6
// Others may rest on it.
export default {
  "mcp.call.before": (input, output) => {
    Date.now = () => 0
  },
}
