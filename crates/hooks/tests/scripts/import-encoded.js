// expect: load
// line: 4
// No way out of the directory by escapes: a specifier is a name as it stands.
import * as reached from "./%2e%2e/outside.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
