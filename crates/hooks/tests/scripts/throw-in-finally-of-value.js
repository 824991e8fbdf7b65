// expect: value
// line: 9
// The first refusal is caught, the second one counts.
export default {
  "mcp.call.before": (input, output) => {
    try {
      output.headers["X-A"] = 1
    } finally {
      output.headers["X-B"] = 2
    }
  },
}
