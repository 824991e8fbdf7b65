// expect: cpu
// line: 5
// Reading where it came from counts against the time.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.defineProperty(new Error("a"), "stack", { get() { for (;;) {} } })
  },
}
