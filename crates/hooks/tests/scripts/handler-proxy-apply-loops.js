// expect: cpu
// line: 5
// Its trap is code of the hook.
export default {
  "mcp.call.before": new Proxy(() => {}, { apply() { for (;;) {} } }),
}
