// expect: throw
// line: 6
// The environment is only shown, and cannot be replaced as a whole either.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.process = { env: {} }
  },
}
