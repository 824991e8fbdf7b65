// expect: late
// line: 0
// A native loop over a length that is only claimed, in flat.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.flat.call({ length: 2 ** 26 })
  },
}
