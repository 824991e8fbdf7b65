// expect: late
// line: 0
// A native loop over a length that is only claimed, in indexOf.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.indexOf.call({ length: 2 ** 26 }, 1)
  },
}
