// expect: value
// line: 6
// More than any head may have.
export default {
  "mcp.call.before": (input, output) => {
    for (let count = 0; count < 100_000; count++) output.headers[`X-${count}`] = "a"
  },
}
