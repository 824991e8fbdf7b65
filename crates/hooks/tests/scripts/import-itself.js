// expect: ok
// line: 0
// A cycle of one. Such a module is there once.
import itself from "./import-itself.js"
export default {
  "mcp.call.before": (input, output) => {
    output.headers["X-A"] = typeof itself
  },
}
