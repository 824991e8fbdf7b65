// expect: throw
// line: 6
// A frozen map must not keep the next file from setting one.
export default {
  "mcp.call.before": (input, output) => {
    Object.freeze(output.headers)
  },
}
