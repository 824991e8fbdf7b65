// expect: ok
// line: 0
// A rejection that nobody looks at is not the handler's own.
export default {
  "mcp.call.before": (input, output) => {
    Promise.reject(new Error("nobody looks"))
  },
}
