// expect: throw
// line: 6
// A message that is no text.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.defineProperty(new Error("a"), "message", { value: { toString: () => { throw 1 } } })
  },
}
