// expect: ok
// line: 0
// Only what the configuration names is shown.
export default {
  "mcp.call.before": (input, output) => {
    const names = ["PATH", "HOME", "CALLSIGN_SEAL_KEY", "CALLSIGN_STATE_DIR"].filter((name) => name in process.env)
    if (names.length > 0) throw new Error(`shows ${names}`)
  },
}
