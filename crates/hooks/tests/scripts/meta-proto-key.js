// expect: ok
// line: 0
// A key like any other once it is JSON, and it changes no prototype.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = JSON.parse('{"__proto__": {"a": 1}}')
  },
}
