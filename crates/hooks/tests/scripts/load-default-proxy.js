// expect: load
// line: 6
// What its traps say is not to be relied on.
export default new Proxy({}, {
  ownKeys() {
    throw new Error("from a trap")
  },
})
