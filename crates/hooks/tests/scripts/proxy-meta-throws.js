// expect: throw
// line: 6
// The trap runs when the engine takes or writes out the meta.
export default {
  "mcp.call.before": (input, output) => {
    output.meta = new Proxy({ a: 1 }, { ownKeys() { throw new Error("from a trap") } })
  },
}
