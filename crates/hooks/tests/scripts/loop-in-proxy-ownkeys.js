// expect: cpu
// line: 6
// The loop is in a trap that the engine runs when it takes the headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = new Proxy({}, { ownKeys() { for (;;) {} } })
  },
}
