// expect: load
// line: 4
// The limit of the stack holds while loading, too.
(function dive() { return 1 + dive() })()
export default {
  "mcp.call.before": () => {},
}
