// expect: throw
// line: 6
// Neither lines of its own in a log nor orders for a terminal.
export default {
  "mcp.call.before": (input, output) => {
    throw new Error("a\n2026-01-01 INFO all is well\x1b[2J\x1b]52;c;eA==\x07\0")
  },
}
