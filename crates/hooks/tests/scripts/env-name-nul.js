// expect: value
// line: 6
// A name cannot hold NUL.
export default {
  "mcp.call.before": (input, output) => {
    output.env["A\0B"] = "a"
  },
}
