// expect: any
// line: 0
// No memory is left for the promise that the handler returns.
export default {
  "mcp.call.before": async (input, output) => {
    const list = []
    try {
      for (let size = 2 ** 20; size >= 1; size /= 2) for (;;) list.push(new Uint8Array(size))
    } catch {}
    try {
      for (;;) list.push({})
    } catch {}
    await null
  },
}
