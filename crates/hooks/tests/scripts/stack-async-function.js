// expect: stack
// line: 6
// An async function runs at once up to its first await, on the same stack.
export default {
  "mcp.call.before": async (input, output) => {
    await (async function dive() { await dive() })()
  },
}
