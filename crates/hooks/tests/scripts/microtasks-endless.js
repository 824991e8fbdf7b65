// expect: cpu
// line: 0
// Every job queues the next one: the queue never runs dry.
export default {
  "mcp.call.before": async (input, output) => {
    const again = () => Promise.resolve().then(again)
    await again()
  },
}
