// expect: late
// line: 0
// A native loop over a length that is only claimed, in concat.
export default {
  "mcp.call.before": (input, output) => {
    [].concat({ length: 2 ** 26, [Symbol.isConcatSpreadable]: true })
  },
}
