// expect: throw
// line: 6
// It is an accessor, which freezing alone does not stop. Refusals would lose their line, in later calls too.
export default {
  "mcp.call.before": (input, output) => {
    Error.stackTraceLimit = 0
    throw new Error("where?")
  },
}
