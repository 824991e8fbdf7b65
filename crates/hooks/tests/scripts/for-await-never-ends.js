// expect: settle
// line: 0
// An async iterator that never answers.
export default {
  "mcp.call.before": async (input, output) => {
    const silent = { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) }
    for await (const one of silent) output.headers["X-A"] = one
  },
}
