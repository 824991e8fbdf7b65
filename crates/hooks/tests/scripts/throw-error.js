// expect: throw
// line: 6
// The plain case.
export default {
  "mcp.call.before": (input, output) => {
    throw new Error("not this one")
  },
}
