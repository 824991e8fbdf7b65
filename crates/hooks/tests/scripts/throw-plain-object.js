// expect: throw
// line: 0
// A message without an error.
export default {
  "mcp.call.before": (input, output) => {
    throw { message: "not this one" }
  },
}
