// expect: late
// line: 0
// A native loop over a length that is only claimed; the callback is never called.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.forEach.call({ length: 2 ** 26 }, () => {})
  },
}
