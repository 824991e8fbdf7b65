// expect: load
// line: 4
// The limit of memory holds while loading, too.
const held = new Uint8Array(2 ** 30)
export default {
  "mcp.call.before": () => console.log(held.length),
}
