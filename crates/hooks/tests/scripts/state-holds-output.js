// expect: ok
// line: 0
// The output of an old call is kept. Changing it must change nothing in this one.
export default {
  "mcp.call.before": (input, output) => {
    const { old } = globalThis.state
    globalThis.state.old = output
    try {
      if (old) old.headers["X-Old"] = "forged"
    } catch {}
  },
}
