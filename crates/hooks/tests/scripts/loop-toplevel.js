// expect: load
// line: 0
// The module never ends loading.
for (;;) {}
export default {
  "mcp.call.before": () => {},
}
