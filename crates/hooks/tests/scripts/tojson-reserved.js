// expect: ok
// line: 0
// A toJSON of the object itself is a member like any other, and no value.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = { toJSON: () => ({ "dev.callsign/identity": { session: "forged" } }) }
  },
}
