// expect: throw
// line: 6
// As in any module, an assignment to what is frozen throws.
export default {
  "mcp.call.before": (input, output) => {
    Object.freeze(output.headers)
    output.headers["X-A"] = "a"
  },
}
