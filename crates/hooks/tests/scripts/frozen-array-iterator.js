// expect: throw
// line: 6
// Spread and for…of use it.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype[Symbol.iterator] = function* () {}
  },
}
