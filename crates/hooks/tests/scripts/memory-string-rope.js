// expect: throw
// line: 0
// Joined strings share their parts, so the longest possible string comes before the limit of memory.
export default {
  "mcp.call.before": (input, output) => {
    let text = "x"
    for (;;) text += text
  },
}
