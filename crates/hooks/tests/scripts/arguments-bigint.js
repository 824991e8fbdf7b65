// expect: value
// line: 0
// JSON has no BigInt.
export default {
  "mcp.call.before": (input, output) => {
    output.arguments.a = 1n
  },
}
