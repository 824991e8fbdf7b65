// expect: memory
// line: 0
// A buffer that may grow, and does.
export default {
  "mcp.call.before": (input, output) => {
    const buffer = new ArrayBuffer(1024, { maxByteLength: 2 ** 30 })
    for (let size = 1024; ; size *= 2) buffer.resize(size)
  },
}
