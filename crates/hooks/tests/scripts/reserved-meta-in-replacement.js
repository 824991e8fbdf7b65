// expect: reserved
// line: 5
// A new object is checked as a whole.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = { a: 1, "dev.callsign/identity": { session: "forged" } }
  },
}
