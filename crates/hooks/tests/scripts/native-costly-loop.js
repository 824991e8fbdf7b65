// expect: late
// line: 0
// Few turns, each of them long: the clock has to be looked at more often than every 10,000 turns.
export default {
  "mcp.call.before": (input, output) => {
    const text = "a".repeat(1_000_000)
    for (;;) text.indexOf("b")
  },
}
