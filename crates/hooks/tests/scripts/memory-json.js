// expect: memory
// line: 0
// A small value that is large once it is written out.
export default {
  "mcp.call.before": (input, output) => {
    let value = "x".repeat(1000)
    for (let level = 0; level < 20; level++) value = [value, value]
    output.meta.a = value
  },
}
