// expect: throw
// line: 6
// An accessor, which freezing alone does not stop. It would run for every later error, and forge where it came from.
export default {
  "mcp.call.before": (input, output) => {
    Error.prepareStackTrace = () => "at hooks/innocent.js:1"
    throw new Error("where?")
  },
}
