// expect: ok
// line: 0
// The state itself can be filled, not replaced.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.state = {}
  },
}
