// expect: ok
// line: 0
// The first word counts.
export default {
  "mcp.call.before": (input, output) => {
    return { then(resolve, reject) { resolve(); reject(new Error("late")); resolve() } }
  },
}
