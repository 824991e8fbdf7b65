// expect: stack
// line: 8
// A chain of proxies without traps.
export default {
  "mcp.call.before": (input, output) => {
    let proxy = {}
    for (let level = 0; level < 20_000; level++) proxy = new Proxy(proxy, {})
    proxy.a
  },
}
