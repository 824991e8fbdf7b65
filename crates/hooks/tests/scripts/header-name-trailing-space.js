// expect: value
// line: 6
// Names are tokens; some readers would cut the space off.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["Callsign-Session "] = "a"
  },
}
