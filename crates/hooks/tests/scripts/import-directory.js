// expect: load
// line: 0
// A directory is no module.
import * as reached from "./"
export default {
  "mcp.call.before": () => console.log(reached),
}
