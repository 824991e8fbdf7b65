// expect: memory
// line: 0
// What is in the state counts too, and must not stay for the next call.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.state.list ??= []
    for (;;) globalThis.state.list.push("x".repeat(4096) + globalThis.state.list.length)
  },
}
