// expect: ok
// line: 0
// Neither lines of its own in the log nor orders for a terminal.
export default {
  "mcp.call.before": (input, output) => {
    console.log("a\n2026-01-01 ERROR forged\x1b[2J\x1b]0;title\x07\0\ud800")
  },
}
