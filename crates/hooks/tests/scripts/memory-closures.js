// expect: memory
// line: 0
// A chain of functions, each of which holds a large array.
export default {
  "mcp.call.before": (input, output) => {
    let next = () => 0
    for (;;) { const before = next, pad = new Array(500).fill(0); next = () => before(pad) }
  },
}
