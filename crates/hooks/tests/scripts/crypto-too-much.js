// expect: throw
// line: 6
// More random bytes than one call gives.
export default {
  "mcp.call.before": (input, output) => {
    crypto.getRandomValues(new Uint8Array(1_000_000))
  },
}
