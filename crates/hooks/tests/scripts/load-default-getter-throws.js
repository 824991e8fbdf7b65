// expect: load
// line: 6
// Reading the handlers runs code of the hook.
export default {
  get "mcp.call.before"() {
    throw new Error("no handler")
  },
}
