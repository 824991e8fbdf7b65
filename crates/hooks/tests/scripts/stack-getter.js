// expect: stack
// line: 6
// A getter that reads itself.
export default {
  "mcp.call.before": (input, output) => {
    ({ get a() { return this.a } }).a
  },
}
