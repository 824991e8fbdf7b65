// expect: load
// line: 4
// The engine's own modules are not there under their old names.
import * as reached from "std"
export default {
  "mcp.call.before": () => console.log(reached),
}
