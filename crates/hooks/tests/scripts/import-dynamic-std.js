// expect: throw
// line: 5
// There is no import at run time, of the engine's own modules neither.
export default {
  "mcp.call.before": async (input, output) => {
    await import("qjs:os")
  },
}
