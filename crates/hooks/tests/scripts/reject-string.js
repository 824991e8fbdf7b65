// expect: throw
// line: 0
// A rejection without an error.
export default {
  "mcp.call.before": (input, output) => {
    return Promise.reject("not this one")
  },
}
