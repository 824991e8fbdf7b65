// expect: cpu
// line: 0
// Showing a value may run code of the hook. Where the engine shows it without, this is the loop below.
export default {
  "mcp.call.before": (input, output) => {
    console.log({ toJSON() { for (;;) {} }, toString() { for (;;) {} } })
    for (;;) {}
  },
}
