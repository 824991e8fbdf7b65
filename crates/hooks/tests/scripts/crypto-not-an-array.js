// expect: throw
// line: 6
// Only typed arrays of integers can be filled.
export default {
  "mcp.call.before": (input, output) => {
    crypto.getRandomValues([1, 2, 3])
  },
}
