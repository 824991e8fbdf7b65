// expect: load
// line: 0
// The default export is an object of handlers.
export default [() => {}]
