// expect: throw
// line: 6
// A cause that leads back.
export default {
  "mcp.call.before": async (input, output) => {
    const error = new Error("a")
    error.cause = error
    throw error
  },
}
