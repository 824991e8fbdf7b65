// expect: late
// line: 0
// A native loop over a length that is only claimed, in unshift.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.unshift.call({ length: 2 ** 26 }, 1)
  },
}
