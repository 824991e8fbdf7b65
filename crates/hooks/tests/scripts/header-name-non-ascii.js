// expect: value
// line: 6
// Names are tokens.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-Größe"] = "a"
  },
}
