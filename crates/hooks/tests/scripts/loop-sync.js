// expect: cpu
// line: 5
// An endless loop.
export default {
  "mcp.call.before": (input, output) => {
    for (;;) {}
  },
}
