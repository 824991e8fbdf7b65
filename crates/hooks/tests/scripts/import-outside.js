// expect: load
// line: 4
// Outside of the file's own directory.
import * as reached from "../outside.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
