// expect: cpu
// line: 6
// Most of these lines are dropped, and the time for them is the hook's own.
export default {
  "mcp.call.before": (input, output) => {
    for (let count = 0; count < 1_000_000; count++) console.log("flood", count)
  },
}
