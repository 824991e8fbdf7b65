// expect: memory
// line: 0
// A map that grows.
export default {
  "mcp.call.before": (input, output) => {
    const map = new Map()
    for (;;) map.set(map.size, new Array(500).fill(0))
  },
}
