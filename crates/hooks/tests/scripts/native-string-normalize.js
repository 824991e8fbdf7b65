// expect: late
// line: 0
// Combining marks in the worst order are sorted one by one.
export default {
  "mcp.call.before": (input, output) => {
    "\u0301\u0316".repeat(20_000).normalize("NFD")
  },
}
