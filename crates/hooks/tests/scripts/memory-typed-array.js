// expect: memory
// line: 0
// One allocation far over the limit.
export default {
  "mcp.call.before": (input, output) => {
    new Uint8Array(2 ** 30)
  },
}
