// expect: throw
// line: 5
// There is no import at run time.
export default {
  "mcp.call.before": async (input, output) => {
    await import("./sibling.js")
  },
}
