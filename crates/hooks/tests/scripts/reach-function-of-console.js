// expect: ok
// line: 0
// The functions that the engine adds lead nowhere else.
export default {
  "mcp.call.before": async (input, output) => {
    const names = ["fetch", "require", "setTimeout", "std", "os", "bjson", "Worker", "WebAssembly", "load"]
    let reached
    try {
      reached = console.log.constructor("return this")()
    } catch {
      return
    }
    const found = names.filter((name) => name in reached)
    if (found.length > 0) throw new Error(`reached ${found}`)
  },
}
