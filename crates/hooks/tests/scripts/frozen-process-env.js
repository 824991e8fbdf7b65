// expect: throw
// line: 6
// The environment is only shown.
export default {
  "mcp.call.before": (input, output) => {
    process.env.USER_ID = "somebody-else"
  },
}
