// expect: memory
// line: 0
// An array that grows by pieces.
export default {
  "mcp.call.before": (input, output) => {
    const list = []
    for (;;) list.push("x".repeat(4096) + list.length)
  },
}
