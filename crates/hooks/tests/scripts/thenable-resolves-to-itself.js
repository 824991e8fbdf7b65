// expect: cpu
// line: 0
// Each resolution is a thenable again.
export default {
  "mcp.call.before": (input, output) => {
    const again = { then(resolve) { resolve({ then: again.then }) } }
    return again
  },
}
