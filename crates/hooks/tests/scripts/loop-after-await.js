// expect: cpu
// line: 5
// An endless loop in a job, after the handler has given way once.
export default {
  "mcp.call.before": async (input, output) => {
    await null
    for (;;) {}
  },
}
