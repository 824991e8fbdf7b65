// expect: cpu
// line: 0
// Out of memory can be caught, so the clock has to end this.
export default {
  "mcp.call.before": (input, output) => {
    const list = []
    for (;;) { try { for (;;) list.push("x".repeat(4096) + list.length) } catch {} }
  },
}
