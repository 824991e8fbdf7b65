// expect: load
// line: 4
// There is no code in addresses.
import * as reached from "data:text/javascript,export default 1"
export default {
  "mcp.call.before": () => console.log(reached),
}
