// expect: cpu
// line: 0
// An iterator without an end.
export default {
  "mcp.call.before": (input, output) => {
    function* forever() {
      for (;;) yield 1
    }
    for (const one of forever()) output.headers["X-A"] = `${one}`
  },
}
