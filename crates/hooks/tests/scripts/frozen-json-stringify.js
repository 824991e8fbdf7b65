// expect: throw
// line: 6
// It would change what is written out.
export default {
  "mcp.call.before": (input, output) => {
    JSON.stringify = () => "{}"
  },
}
