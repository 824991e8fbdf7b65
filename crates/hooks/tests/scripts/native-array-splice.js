// expect: late
// line: 0
// A native loop over a length that is only claimed, in splice.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.splice.call({ length: 2 ** 26 }, 0, 1)
  },
}
