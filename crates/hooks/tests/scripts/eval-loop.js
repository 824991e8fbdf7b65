// expect: cpu
// line: 12
// Code from text is refused as a throw, or is under the same limits.
export default {
  "mcp.call.before": (input, output) => {
    let run
    try {
      run = new Function("for (;;) {}")
    } catch {
      for (;;) {}
    }
    run()
  },
}
