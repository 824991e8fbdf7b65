// expect: throw
// line: 6
// Nothing stays from call to call but the state.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.leak = "into the next call"
  },
}
