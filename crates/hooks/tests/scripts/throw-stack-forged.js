// expect: throw
// line: 0
// Where it came from is text that the hook can write. It must not break the message.
export default {
  "mcp.call.before": (input, output) => {
    throw Object.defineProperty(new Error("a"), "stack", { value: "    at x (hooks/innocent.js:99999999999999999999:-1)\n\0" })
  },
}
