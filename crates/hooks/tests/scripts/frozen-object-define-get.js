// expect: throw
// line: 6
// It would be found where an own member is missing.
export default {
  "mcp.call.before": (input, output) => {
    Object.defineProperty(Object.prototype, "headers", { get: () => ({}) })
  },
}
