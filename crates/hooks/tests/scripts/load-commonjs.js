// expect: load
// line: 4
// There is no `module` here.
module.exports = {
  "mcp.call.before": () => {},
}
