// expect: value
// line: 6
// It would be another variable than its name says.
export default {
  "mcp.call.before": (input, output) => {
    output.env["A=LD_PRELOAD"] = "a"
  },
}
