// expect: throw
// line: 6
// The trap runs when the engine takes the headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = new Proxy({ "X-A": "a" }, { get() { throw new Error("from a trap") } })
  },
}
