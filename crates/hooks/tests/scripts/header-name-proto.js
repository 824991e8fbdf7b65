// expect: ok
// line: 0
// A name like any other in a map of headers; it changes no prototype.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["__proto__"] = "a"
  },
}
