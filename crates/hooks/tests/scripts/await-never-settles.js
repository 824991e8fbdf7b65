// expect: settle
// line: 0
// The handler waits for what nobody can settle: it is over as soon as no job is left.
export default {
  "mcp.call.before": async (input, output) => {
    await new Promise(() => {})
    output.headers["X-A"] = "never"
  },
}
