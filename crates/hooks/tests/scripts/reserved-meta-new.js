// expect: reserved
// line: 5
// Not the hook's to set.
export default {
  "mcp.call.before": (input, output) => {
    output.meta["dev.callsign/anything"] = "forged"
  },
}
