// expect: load
// line: 0
// The module waits for a promise that nobody settles.
await new Promise(() => {})
export default {
  "mcp.call.before": () => {},
}
