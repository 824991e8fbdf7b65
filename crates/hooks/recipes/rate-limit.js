// recipes/rate-limit.js
// Lets each session call at most 30 tools in any 60 seconds.
const LIMIT = 30
const MINUTE = 60_000

export default {
  "mcp.call.before": (input) => {
    if (input.method !== "tools/call") return
    const start = Date.now() - MINUTE
    globalThis.state.calls ??= {} // host and session → the times of its calls, oldest first
    const { calls } = globalThis.state
    // Who has been silent for a minute is forgotten, so that the state does not grow.
    for (const [session, times] of Object.entries(calls)) {
      if (times.at(-1) <= start) delete calls[session]
    }
    // Callers of whom nothing is known share one entry.
    const session = `${input.host}/${input.sessionID}`
    const times = (calls[session] ?? []).filter((time) => time > start)
    if (times.length >= LIMIT) {
      const wait = Math.ceil((times[0] - start) / 1000)
      throw new Error(`this session has made ${LIMIT} calls within a minute; try again in ${wait} s`)
    }
    calls[session] = [...times, start + MINUTE]
  },
}
