// expect: throw
// line: 6
// Reading `then` runs code of the hook.
export default {
  "mcp.call.before": (input, output) => {
    return { get then() { throw new Error("no then") } }
  },
}
