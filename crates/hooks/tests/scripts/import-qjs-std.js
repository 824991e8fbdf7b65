// expect: load
// line: 4
// The engine's own modules are not there.
import * as reached from "qjs:std"
export default {
  "mcp.call.before": () => console.log(reached),
}
