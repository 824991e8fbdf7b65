// expect: load
// line: 4
// There is no such module.
import * as reached from "node:fs"
export default {
  "mcp.call.before": () => console.log(reached),
}
