// expect: load
// line: 0
// A plugin of another kind: the default export is an object of handlers.
export default async function plugin() {
  return { "mcp.call.before": () => {} }
}
