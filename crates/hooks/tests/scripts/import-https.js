// expect: load
// line: 4
// There is no network.
import * as reached from "https://example.com/hook.js"
export default {
  "mcp.call.before": () => console.log(reached),
}
