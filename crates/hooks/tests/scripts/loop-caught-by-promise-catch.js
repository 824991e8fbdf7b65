// expect: cpu
// line: 6
// A rejection handler must not see an interruption.
export default {
  "mcp.call.before": async (input, output) => {
    const inner = async () => { for (;;) {} }
    await inner().catch(() => {}).finally(() => {})
  },
}
