// expect: cpu
// line: 8
// The interruption of a search must not be caught either.
export default {
  "mcp.call.before": (input, output) => {
    for (;;) {
      try {
        /^(a+)+$/.test("a".repeat(40) + "b")
      } catch {}
    }
  },
}
