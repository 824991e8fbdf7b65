// expect: load
// line: 0
// Handlers under another name would never run.
export const hooks = {
  "mcp.call.before": () => {},
}
