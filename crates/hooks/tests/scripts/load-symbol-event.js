// expect: load
// line: 0
// An event that is no text would never run.
export default {
  "mcp.call.before": () => {},
  [Symbol("mcp.call.after")]: () => {},
}
