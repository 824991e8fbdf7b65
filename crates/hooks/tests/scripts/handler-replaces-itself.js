// expect: ok
// line: 0
// What the file exports is read once, at load; the next call gets the same handler.
const hooks = {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = "first"
    hooks["mcp.call.before"] = () => { for (;;) {} }
  },
}
export default hooks
