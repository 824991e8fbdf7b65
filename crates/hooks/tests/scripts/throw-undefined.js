// expect: throw
// line: 0
// Nothing at all is thrown. It is a refusal nevertheless.
export default {
  "mcp.call.before": (input, output) => {
    throw undefined
  },
}
