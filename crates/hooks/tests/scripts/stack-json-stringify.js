// expect: any
// line: 5
// A deep value, which is written out after the handler.
export default {
  "mcp.call.before": (input, output) => {
    let deep = []
    for (let level = 0; level < 50_000; level++) deep = [deep]
    output.meta.a = deep
  },
}
