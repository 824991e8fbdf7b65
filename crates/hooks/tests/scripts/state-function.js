// expect: ok
// line: 0
// Functions may be kept; a call that finds one there is as limited as any.
export default {
  "mcp.call.before": (input, output) => {
    globalThis.state.run ??= () => 1
    globalThis.state.run()
  },
}
