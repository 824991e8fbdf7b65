// expect: value
// line: 6
// A definition is checked like an assignment.
export default {
  "mcp.call.before": (input, output) => {
    Object.defineProperty(output.headers, "X-A", { get: () => "a\r\nHost: evil.example", enumerable: true })
  },
}
