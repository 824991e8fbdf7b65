// expect: ok
// line: 0
// JSON has no NaN: it is null, and null is left out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = NaN
  },
}
