// expect: throw
// line: 6
// It decides what `then` makes.
export default {
  "mcp.call.before": (input, output) => {
    Object.defineProperty(Promise, Symbol.species, { value: Array })
  },
}
