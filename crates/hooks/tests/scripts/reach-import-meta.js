// expect: ok
// line: 0
// It says nothing that the hook could use.
export default {
  "mcp.call.before": async (input, output) => {
    const names = ["fetch", "require", "setTimeout", "std", "os", "bjson", "Worker", "WebAssembly", "load"]
    let reached
    try {
      reached = import.meta
    } catch {
      return
    }
    const found = names.filter((name) => name in reached)
    if (found.length > 0) throw new Error(`reached ${found}`)
  },
}
