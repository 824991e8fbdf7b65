// expect: load
// line: 0
// Missing is fine, null is a mistake.
export default {
  "mcp.call.before": null,
}
