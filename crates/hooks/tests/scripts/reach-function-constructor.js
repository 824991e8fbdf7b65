// expect: ok
// line: 0
// Code from text is refused, or finds no more than the module does.
export default {
  "mcp.call.before": async (input, output) => {
    const names = ["fetch", "require", "setTimeout", "std", "os", "bjson", "Worker", "WebAssembly", "load"]
    let reached
    try {
      reached = (() => {}).constructor("return this")()
    } catch {
      return
    }
    const found = names.filter((name) => name in reached)
    if (found.length > 0) throw new Error(`reached ${found}`)
  },
}
