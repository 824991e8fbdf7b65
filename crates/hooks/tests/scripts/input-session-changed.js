// expect: throw
// line: 6
// Who calls is settled. A later file must not see anything else.
export default {
  "mcp.call.before": (input, output) => {
    input.sessionID = "forged"
  },
}
