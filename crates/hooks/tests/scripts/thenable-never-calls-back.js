// expect: settle
// line: 0
// The engine hands it two functions and hears of neither.
export default {
  "mcp.call.before": (input, output) => {
    return { then() {} }
  },
}
