// expect: throw
// line: 6
// What it says cannot be read.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.defineProperty(new Error("a"), "message", { get() { throw new Error("no message") } })
  },
}
