// expect: throw
// line: 6
// A `then` that throws is a rejection.
export default {
  "mcp.call.before": (input, output) => {
    return { then() { throw new Error("no") } }
  },
}
