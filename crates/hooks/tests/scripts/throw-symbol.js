// expect: throw
// line: 0
// It cannot be made a text by adding it to one.
export default {
  "mcp.call.before": (input, output) => {
    throw Symbol("not this one")
  },
}
