// expect: stack
// line: 6
// Source text that is nested deeply. Where code from text is refused, so is this.
export default {
  "mcp.call.before": (input, output) => {
    new Function("return " + "(".repeat(50_000) + "1" + ")".repeat(50_000))
  },
}
