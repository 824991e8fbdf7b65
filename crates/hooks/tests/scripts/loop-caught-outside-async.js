// expect: cpu
// line: 6
// The interruption of an inner async function must not be a rejection that the outer one catches.
export default {
  "mcp.call.before": async (input, output) => {
    const inner = async () => { for (;;) {} }
    for (;;) {
      try {
        await inner()
      } catch {}
    }
  },
}
