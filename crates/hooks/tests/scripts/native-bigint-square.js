// expect: late
// line: 0
// Each multiplication takes four times as long as the one before.
export default {
  "mcp.call.before": (input, output) => {
    let number = 3n
    for (;;) number *= number
  },
}
