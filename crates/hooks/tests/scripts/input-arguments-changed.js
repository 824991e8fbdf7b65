// expect: ok
// line: 0
// Only output.arguments counts. Where the input is frozen to its depth this is a throw, which is as good.
export default {
  "mcp.call.before": (input, output) => {
    try {
      input.arguments.forged = true
    } catch {}
  },
}
