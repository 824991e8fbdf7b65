// expect: throw
// line: 6
// Nothing stays from call to call by forgetting to declare it.
export default {
  "mcp.call.before": (input, output) => {
    leak = "into the next call"
  },
}
