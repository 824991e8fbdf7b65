// expect: reserved
// line: 6
// A definition is checked like an assignment, also where it would not be listed.
export default {
  "mcp.call.before": (input, output) => {
    Object.defineProperty(output.headers, "Callsign-Session", { value: "forged", enumerable: false })
  },
}
