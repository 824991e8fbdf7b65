// expect: ok
// line: 0
// A log line is not worth a refusal, also where a value cannot be shown.
export default {
  "mcp.call.before": (input, output) => {
    const no = () => { throw new Error("not shown") }
    console.log({ toString: no, toJSON: no, get a() { return no() }, [Symbol.toPrimitive]: no })
    console.error(new Proxy({}, { get: no, ownKeys: no, getPrototypeOf: no }))
    console.warn(Symbol("a"), 1n, () => {}, undefined, null, -0)
  },
}
