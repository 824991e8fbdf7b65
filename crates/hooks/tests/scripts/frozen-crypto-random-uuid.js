// expect: throw
// line: 6
// Others may rest on it.
export default {
  "mcp.call.before": (input, output) => {
    crypto.randomUUID = () => "00000000-0000-4000-8000-000000000000"
  },
}
