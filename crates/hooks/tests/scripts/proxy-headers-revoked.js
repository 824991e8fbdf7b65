// expect: throw
// line: 8
// Anything one does with it throws.
export default {
  "mcp.call.before": (input, output) => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    output.headers = proxy
  },
}
