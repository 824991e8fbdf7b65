// expect: throw
// line: 6
// Built-in objects cannot be taken away.
export default {
  "mcp.call.before": (input, output) => {
    delete globalThis.JSON
  },
}
