// expect: ok
// line: 0
// What a handler returns is not looked at; only the output counts.
export default {
  "mcp.call.before": (input, output) => {
    return { headers: { Host: "evil.example" } }
  },
}
