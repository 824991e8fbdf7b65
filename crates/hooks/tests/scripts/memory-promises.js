// expect: memory
// line: 0
// Promises that wait for one another.
export default {
  "mcp.call.before": async (input, output) => {
    const waiting = []
    for (;;) waiting.push(new Promise(() => {}), new Array(200).fill(0))
  },
}
