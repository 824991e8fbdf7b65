// expect: reserved
// line: 6
// A new map is checked as a whole.
export default {
  "mcp.call.before": (input, output) => {
    output.env = { A: "a", LD_PRELOAD: "/tmp/x.so" }
  },
}
