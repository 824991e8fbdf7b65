// expect: throw
// line: 0
// What it says cannot be read.
export default {
  "mcp.call.before": (input, output) => {
    throw { toString() { throw new Error("no text") } }
  },
}
