// expect: ok
// line: 0
// There is none to delete: the transport writes it afterwards.
export default {
  "mcp.call.before": (input, output) => {
    delete output.headers.Host
  },
}
