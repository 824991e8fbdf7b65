// expect: late
// line: 0
// Each overflow is caught and starts two more.
export default {
  "mcp.call.before": (input, output) => {
    const dive = () => { try { dive() } catch { dive() } finally { dive() } }
    dive()
  },
}
