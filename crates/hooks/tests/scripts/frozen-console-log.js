// expect: throw
// line: 6
// The log is not the hook's to silence.
export default {
  "mcp.call.before": (input, output) => {
    console.log = () => {}
  },
}
