// expect: ok
// line: 0
// A log line is not worth a refusal.
export default {
  "mcp.call.before": (input, output) => {
    const ring = { name: "ring" }
    ring.ring = ring
    console.log(ring, [ring], new Map([[ring, ring]]))
  },
}
