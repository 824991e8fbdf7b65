// expect: late
// line: 0
// A native loop over a length that is only claimed, in sort.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.sort.call({ length: 2 ** 26 })
  },
}
