// expect: throw
// line: 6
// Nothing may put the thread to sleep.
export default {
  "mcp.call.before": (input, output) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
  },
}
