// expect: throw
// line: 6
// The prototypes that have no global name count too: generators.
export default {
  "mcp.call.before": (input, output) => {
    Object.getPrototypeOf(function* () {}).prototype.next = () => ({ done: true })
  },
}
