// expect: throw
// line: 6
// Every await goes through it.
export default {
  "mcp.call.before": (input, output) => {
    Promise.prototype.then = () => {}
  },
}
