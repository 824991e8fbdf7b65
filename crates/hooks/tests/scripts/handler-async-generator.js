// expect: ok
// line: 0
// Its body never runs. That is what such a function is.
export default {
  async *"mcp.call.before"(input, output) {
    output.headers["X-A"] = "never"
  },
}
