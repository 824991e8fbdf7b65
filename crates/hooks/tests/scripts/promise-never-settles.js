// expect: settle
// line: 0
// Nobody can settle it: it is over as soon as no job is left.
export default {
  "mcp.call.before": (input, output) => {
    return new Promise(() => {})
  },
}
