// expect: ok
// line: 0
// An own `then` on a real promise: its state counts, not what it says.
export default {
  "mcp.call.before": (input, output) => {
    const promise = Promise.resolve()
    return Object.defineProperty(promise, "then", { value: () => { throw new Error("mine") } })
  },
}
