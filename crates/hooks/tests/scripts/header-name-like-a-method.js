// expect: ok
// line: 0
// Names like any other in a map of headers.
export default {
  "mcp.call.before": (input, output) => {
    output.headers["constructor"] = "a"
    output.headers["hasOwnProperty"] = "b"
    output.headers["toString"] = "c"
  },
}
