// expect: cpu
// line: 6
// The loop is in a getter that the engine reads when it takes the headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = { get "X-A"() { for (;;) {} } }
  },
}
