// expect: reserved
// line: 6
// It says who calls, which is settled.
export default {
  "mcp.call.before": (input, output) => {
    output.env.CODEX_THREAD_ID = "forged"
  },
}
