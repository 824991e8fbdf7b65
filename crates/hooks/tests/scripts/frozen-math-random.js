// expect: throw
// line: 6
// Others may rest on it.
export default {
  "mcp.call.before": (input, output) => {
    Math.random = () => 0.5
  },
}
