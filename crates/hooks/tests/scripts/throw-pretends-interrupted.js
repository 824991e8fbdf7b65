// expect: throw
// line: 6
// Only the engine says so.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.assign(new Error("interrupted"), { uncatchable: true })
  },
}
