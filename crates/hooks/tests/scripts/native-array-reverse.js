// expect: late
// line: 0
// A native loop over a length that is only claimed. It asks for no interruption by itself, and 2 ** 53 is as easily claimed.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.reverse.call({ length: 2 ** 26 })
  },
}
