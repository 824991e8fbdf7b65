// expect: load
// line: 5
// Reading the handlers runs code of the hook, under the same limits.
export default {
  get "mcp.call.before"() {
    for (;;) {}
  },
}
