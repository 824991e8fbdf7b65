// expect: load
// line: 4
// No file has such a name.
import * as reached from "./a\0.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
