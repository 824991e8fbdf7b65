// expect: memory
// line: 0
// An array that is as long as the largest, filled.
export default {
  "mcp.call.before": (input, output) => {
    new Array(2 ** 26).fill(0)
  },
}
