// expect: load
// line: 4
// There is no such file.
import * as reached from "./not-there.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
