// expect: load
// line: 4
// Outside of the file's own directory, by its full path.
import * as reached from "/etc/passwd"
export default {
  "mcp.call.before": () => console.log(reached),
}
