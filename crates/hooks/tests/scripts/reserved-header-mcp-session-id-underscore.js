// expect: reserved
// line: 6
// In whatever spelling, it is not the hook's to set.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["mcp_session_id"] = "forged"
  },
}
