// expect: throw
// line: 8
// A promise of another class has a `then` of its own.
export default {
  "mcp.call.before": (input, output) => {
    class Odd extends Promise {
      then() {
        throw new Error("odd")
      }
    }
    return Odd.resolve()
  },
}
