// expect: reserved
// line: 6
// It says who calls, which is settled.
export default {
  "mcp.call.before": (input, output) => {
    output.env.CALLSIGN_SESSION_ID = "forged"
  },
}
