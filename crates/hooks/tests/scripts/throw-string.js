// expect: throw
// line: 0
// No error, so it knows no line.
export default {
  "mcp.call.before": (input, output) => {
    throw "not this one"
  },
}
