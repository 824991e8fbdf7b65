// expect: load
// line: 0
// No way out of the directory by another separator.
import * as reached from "..\\outside.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
