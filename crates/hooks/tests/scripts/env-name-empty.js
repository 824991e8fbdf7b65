// expect: value
// line: 6
// A variable has a name.
export default {
  "mcp.call.before": (input, output) => {
    output.env[""] = "a"
  },
}
