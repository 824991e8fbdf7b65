// expect: ok
// line: 0
// Deeper than the 128 levels that a message may have.
export default {
  "mcp.call.before": (input, output) => {
    let deep = []
    for (let level = 0; level < 300; level++) deep = [deep]
    output.arguments.a = deep
  },
}
