// expect: throw
// line: 6
// The getter runs when the engine takes the headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = { get "X-A"() { throw new Error("from a getter") } }
  },
}
