// recipes/traceparent.js
// Gives every call a W3C trace context, for servers that report traces. One that is there is kept.
const VALID = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-|$)/

function randomHex(bytes) {
  const random = crypto.getRandomValues(new Uint8Array(bytes))
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")
}

export default {
  "mcp.call.before": (input, output) => {
    // The host's own, in `_meta`, comes first; then one that the configuration or a hook before this one set.
    const given = [output.meta.traceparent, output.headers.traceparent]
    // Version, trace id, span id, flags: 01 asks for the trace to be kept.
    const traceparent = given.find((value) => VALID.test(value)) ?? `00-${randomHex(16)}-${randomHex(8)}-01`
    output.headers.traceparent = traceparent
    output.meta.traceparent = traceparent
  },
}
