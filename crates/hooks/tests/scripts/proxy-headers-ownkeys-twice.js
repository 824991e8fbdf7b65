// expect: throw
// line: 6
// A list with one name twice breaks the rules of proxies.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = new Proxy({}, { ownKeys: () => ["X-A", "X-A"] })
  },
}
