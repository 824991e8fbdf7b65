// expect: reserved
// line: 5
// The argument in which a host seals who calls.
export default {
  "mcp.call.before": (input, output) => {
    output.arguments.__callsign = "forged"
  },
}
