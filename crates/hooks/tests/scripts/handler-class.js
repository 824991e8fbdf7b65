// expect: throw
// line: 0
// A class is a function, and cannot be called as one.
export default {
  "mcp.call.before": class {},
}
