// expect: ok
// line: 0
// Something else each time. What is checked, signed and sent must be one text.
export default {
  "mcp.call.before": (input, output) => {
    let asked = 0
    output.arguments.a = { toJSON: () => `answer ${++asked}` }
    output.meta.a = { toJSON: () => ({ asked: ++asked }) }
  },
}
