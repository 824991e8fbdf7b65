// expect: throw
// line: 6
// The callback may run in this call, where it is cut off, or never. It must not run in the next one.
export default {
  "mcp.call.before": (input, output) => {
    new FinalizationRegistry(() => { for (;;) {} }).register({}, 1)
  },
}
