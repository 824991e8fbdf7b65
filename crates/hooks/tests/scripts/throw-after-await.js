// expect: throw
// line: 7
// A throw in a job is a rejection.
export default {
  "mcp.call.before": async (input, output) => {
    await null
    throw new Error("not this one")
  },
}
