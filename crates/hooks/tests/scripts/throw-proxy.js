// expect: throw
// line: 0
// Whatever one asks of it throws.
export default {
  "mcp.call.before": (input, output) => {
    const trap = () => { throw trap }
    throw new Proxy(new Error("a"), { get: trap, has: trap, getPrototypeOf: trap, getOwnPropertyDescriptor: trap })
  },
}
