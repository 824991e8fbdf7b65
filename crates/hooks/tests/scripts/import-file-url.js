// expect: load
// line: 4
// An address is no sibling.
import * as reached from "file:///etc/passwd"
export default {
  "mcp.call.before": () => console.log(reached),
}
