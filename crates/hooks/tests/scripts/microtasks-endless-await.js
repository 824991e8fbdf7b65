// expect: cpu
// line: 5
// An endless loop that gives way at each turn.
export default {
  "mcp.call.before": async (input, output) => {
    for (;;) await null
  },
}
