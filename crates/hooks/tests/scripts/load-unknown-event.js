// expect: load
// line: 0
// A misspelt event would never run.
export default {
  "mcp.call.befor": () => {},
}
