// expect: ok
// line: 0
// What writes itself out as nothing is left out.
export default {
  "mcp.call.before": (input, output) => {
    output.meta.a = { toJSON: () => undefined }
  },
}
