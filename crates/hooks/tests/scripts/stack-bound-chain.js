// expect: memory
// line: 0
// A chain of bound functions.
export default {
  "mcp.call.before": (input, output) => {
    let bound = () => 1
    for (let level = 0; level < 20_000; level++) bound = bound.bind(null)
    bound()
  },
}
