// expect: throw
// line: 6
// Traps of proxies use it.
export default {
  "mcp.call.before": (input, output) => {
    Reflect.set = () => true
  },
}
