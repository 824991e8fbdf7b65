// expect: ok
// line: 0
// Over the limit is over the limit, also where the hook caught it and went on.
export default {
  "mcp.call.before": (input, output) => {
    try {
      new Uint8Array(2 ** 30)
    } catch {}
    output.headers["X-A"] = "went on"
  },
}
