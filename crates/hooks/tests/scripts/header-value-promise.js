// expect: value
// line: 6
// Somebody forgot to await.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = Promise.resolve("a")
  },
}
