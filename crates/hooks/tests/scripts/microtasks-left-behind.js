// expect: cpu
// line: 5
// Nobody awaits this job. It belongs to this call all the same, and must not run in the next one.
export default {
  "mcp.call.before": (input, output) => {
    Promise.resolve().then(() => { for (;;) {} })
  },
}
