// expect: value
// line: 6
// A value cannot hold NUL.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "a\0b"
  },
}
