// expect: memory
// line: 0
// More than the 4 MiB that a message may have.
export default {
  "mcp.call.before": (input, output) => {
    output.arguments.a = "a".repeat(5 * 2 ** 20)
  },
}
