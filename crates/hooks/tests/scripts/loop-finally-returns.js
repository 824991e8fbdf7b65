// expect: cpu
// line: 5
// A return in finally must not turn the interruption into a success.
export default {
  "mcp.call.before": (input, output) => {
    try {
      for (;;) {}
    } finally {
      return
    }
  },
}
