// expect: late
// line: 0
// A native loop over a length that is only claimed, in join with nothing to put between.
export default {
  "mcp.call.before": (input, output) => {
    Array.prototype.join.call({ length: 2 ** 26 }, "")
  },
}
