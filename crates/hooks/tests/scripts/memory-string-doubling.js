// expect: memory
// line: 0
// Twice as long each time, as one flat string.
export default {
  "mcp.call.before": (input, output) => {
    let text = "x"
    for (;;) text = text.repeat(2)
  },
}
