// expect: cpu
// line: 5
// Nothing may catch or outlive an interruption.
export default {
  "mcp.call.before": (input, output) => {
    for (;;) { try { for (;;) {} } catch {} finally {} }
  },
}
