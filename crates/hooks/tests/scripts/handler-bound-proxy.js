// expect: ok
// line: 0
// A proxy of a function can be called like one.
export default {
  "mcp.call.before": new Proxy(() => {}, {}),
}
