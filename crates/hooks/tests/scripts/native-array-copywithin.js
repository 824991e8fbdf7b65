// expect: late
// line: 0
// A native loop over a length that is only claimed, in copyWithin.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.copyWithin.call({ length: 2 ** 26 }, 0, 1)
  },
}
