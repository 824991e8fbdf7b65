// expect: cpu
// line: 6
// Reading what it says counts against the time.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.defineProperty(new Error("a"), "message", { get() { for (;;) {} } })
  },
}
