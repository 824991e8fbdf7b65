// recipes/pin-arguments.js
// Decides some arguments of a tool, whatever the model asks for.
const TOOL = "search"
const LIMIT = 100
const REGION = "eu-west-1"

export default {
  "mcp.call.before": (input, output) => {
    if (input.method !== "tools/call" || input.tool !== TOOL) return
    output.arguments ??= {} // A call may come without any.
    const { limit } = output.arguments
    // What is no number gets the limit too: "1000" would pass a comparison with it in some servers.
    output.arguments.limit = typeof limit === "number" ? Math.min(limit, LIMIT) : LIMIT
    output.arguments.region = REGION
    delete output.arguments.debug
  },
}
