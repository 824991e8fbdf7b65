// expect: ok
// line: 0
// After the handler is done nothing counts any more.
export default {
  "mcp.call.before": async (input, output) => {
    Promise.resolve().then(() => {}).then(() => {}).then(() => {}).then(() => {}).then(() => {
      output.headers["X-Late"] = "a"
    })
  },
}
