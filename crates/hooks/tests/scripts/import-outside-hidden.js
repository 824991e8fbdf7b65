// expect: load
// line: 4
// Outside of the file's own directory, on a detour.
import * as reached from "./deeper/../../outside.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
