// expect: load
// line: 0
// A file without a default export would never run.
// Nothing follows.
