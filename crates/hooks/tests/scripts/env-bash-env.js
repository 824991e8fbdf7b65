// expect: reserved
// line: 6
// It makes a program load or run other code.
export default {
  "mcp.call.before": (input, output) => {
    output.env.BASH_ENV = "forged"
  },
}
