// expect: throw
// line: 6
// It would change what a later call is.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.JSON = { parse: () => ({}), stringify: () => "{}" }
  },
}
