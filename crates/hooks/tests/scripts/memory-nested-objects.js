// expect: memory
// line: 0
// Each object holds the one before. Freeing them must not recurse either.
export default {
  "mcp.call.before": (input, output) => {
    let inner = {}
    for (;;) inner = { inner, pad: new Array(100).fill(0) }
  },
}
