// recipes/deny-tool.js
// Keeps a destructive tool for a few sessions. The others are refused, and do not see it.
const TOOL = "delete_database"
const SESSIONS = ["ses_operator"]

// Below trust "host" a client can call itself whatever it likes.
const mayUse = ({ sessionID, trust }) =>
  SESSIONS.includes(sessionID) && (trust === "host" || trust === "bound")

export default {
  "mcp.call.before": (input) => {
    if (input.method !== "tools/call" || input.tool !== TOOL || mayUse(input)) return
    throw new Error(`${TOOL} is not for this session; ask an operator to run it`)
  },

  "mcp.call.after": (input, output) => {
    if (input.method !== "tools/list" || mayUse(input)) return
    // Many hosts list tools once for all their sessions and name none. They see the tool; calls are refused.
    if (input.sessionID === undefined || output.result === undefined) return
    output.result.tools = output.result.tools.filter((tool) => tool.name !== TOOL)
  },
}
