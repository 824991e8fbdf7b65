// expect: load
// line: 4
// The module fails while it is loaded.
throw new Error("not today")
export default {
  "mcp.call.before": () => {},
}
