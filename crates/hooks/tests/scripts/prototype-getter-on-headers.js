// expect: throw
// line: 6
// A name that only the prototype of a new map has is no header.
export default {
  "mcp.call.before": (input, output) => {
    output.headers = Object.create({ Host: "evil.example" })
  },
}
