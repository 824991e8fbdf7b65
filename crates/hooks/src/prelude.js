// Runs first in every context, before any hook, and makes what hooks see: their input and output, `console`,
// `process`, `crypto` and `state`. What comes back from here is checked once more on the other side, so a hook that
// tampers with it in a context of its own gains nothing.
//
// complain(kind, name, value): why a name or value cannot be, or undefined.
// given(which): what the call brings along; asked for only when a hook looks at it.
(function (complain, given, log, randomBytes, environment, stateful) {
  "use strict"

  const HEADER = 0, VARIABLE = 1, META = 2, ARGUMENT = 3, RESULT = 4
  const HEADERS_GIVEN = 0, ARGUMENTS_GIVEN = 1, META_GIVEN = 2, RESULT_GIVEN = 3
  const EVENTS = ["mcp.call.before", "mcp.call.after"]
  const KINDS = ["header", "variable"]
  // Headers or variables of one call.
  const MOST = 256

  const refuse = (why) => {
    throw new TypeError(why)
  }
  const kindOf = (value) => (Array.isArray(value) ? "a list" : value === null ? "null" : `a value of type ${typeof value}`)

  // Headers and variables: names and strings. Names of headers are the same in upper and lower case.
  const keyOf = (pairs, name) => (pairs.kind === HEADER ? name.toLowerCase() : name)
  const put = (pairs, name, value) => {
    if (typeof name !== "string") refuse(`the name of a ${KINDS[pairs.kind]} must be a string, not a symbol`)
    const absent = value === undefined || value === null
    if (!absent && typeof value !== "string") {
      refuse(`the ${KINDS[pairs.kind]} \`${name}\` must be a string, not ${kindOf(value)}`)
    }
    if (!absent && !(name.isWellFormed() && value.isWellFormed())) {
      refuse(`the ${KINDS[pairs.kind]} \`${name.toWellFormed()}\` has half a character in it`)
    }
    const why = complain(pairs.kind, name, absent ? "" : value)
    if (why !== undefined) refuse(why)
    const key = keyOf(pairs, name)
    pairs.changed = true
    if (absent) return pairs.map.delete(key)
    if (pairs.map.size >= MOST && !pairs.map.has(key)) refuse(`there can be at most ${MOST} ${KINDS[pairs.kind]}s`)
    pairs.map.set(key, [name, value])
  }
  const find = (pairs, name) => (typeof name === "string" ? pairs.map.get(keyOf(pairs, name)) : undefined)
  const traps = {
    get(pairs, name) {
      const pair = find(pairs, name)
      return pair === undefined ? Reflect.get(Object.prototype, name) : pair[1]
    },
    has: (pairs, name) => find(pairs, name) !== undefined,
    set(pairs, name, value) {
      put(pairs, name, value)
      return true
    },
    deleteProperty(pairs, name) {
      if (typeof name === "string" && pairs.map.delete(keyOf(pairs, name))) pairs.changed = true
      return true
    },
    ownKeys: (pairs) => Array.from(pairs.map.values(), (pair) => pair[0]),
    getOwnPropertyDescriptor(pairs, name) {
      const pair = find(pairs, name)
      return pair && { value: pair[1], writable: true, enumerable: true, configurable: true }
    },
    defineProperty(pairs, name, descriptor) {
      if ("get" in descriptor || "set" in descriptor) refuse(`\`${String(name)}\` must be a plain value`)
      put(pairs, name, descriptor.value)
      return true
    },
    setPrototypeOf: () => refuse("this object's prototype stays as it is"),
    preventExtensions: () => refuse("this object cannot be frozen"),
  }
  const makePairs = (kind, flat) => {
    const map = new Map()
    const pairs = { kind, map, changed: false }
    if (flat !== undefined) {
      for (let at = 0; at < flat.length; at += 2) map.set(keyOf(pairs, flat[at]), [flat[at], flat[at + 1]])
    }
    pairs.proxy = new Proxy(pairs, traps)
    return pairs
  }
  const replacePairs = (kind, value) => {
    const name = kind === HEADER ? "headers" : "env"
    const absent = value === undefined || value === null
    if (!absent && (typeof value !== "object" || Array.isArray(value))) refuse(`\`${name}\` must be an object, not ${kindOf(value)}`)
    const prototype = absent ? null : Object.getPrototypeOf(value)
    // The entries of a Map would be lost without a word.
    if (prototype !== null && prototype !== Object.prototype) refuse(`\`${name}\` must be a plain object`)
    const pairs = makePairs(kind)
    for (const name of Reflect.ownKeys(value ?? {})) put(pairs, name, value[name])
    pairs.changed = true
    return pairs
  }
  const flatten = (pairs) => {
    if (pairs === undefined || !pairs.changed) return undefined
    const flat = []
    for (const [name, value] of pairs.map.values()) flat.push(name, value)
    return flat
  }

  // JSON objects: read when they are looked at, compared when the hook is done. A member that did not change is left
  // as it was written: not every JSON number survives in here.
  const NAMES = ["", "", "meta", "arguments", "result"]
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value)
  const parse = (which) => {
    const text = given(which)
    return text === undefined ? undefined : JSON.parse(text)
  }
  const open = (kind, which) => {
    const value = parse(which) ?? {}
    // Keys that are not a hook's business are not shown, so that it can replace the rest.
    if (kind === META) for (const name of Object.keys(value)) if (complain(kind, name) !== undefined) delete value[name]
    const before = new Map()
    if (isObject(value)) for (const name of Object.keys(value)) before.set(name, JSON.stringify(value[name]))
    return { kind, value, before, whole: isObject(value) ? undefined : JSON.stringify(value) }
  }
  const changes = (json) => {
    if (json === undefined) return undefined
    const { kind, before, whole } = json
    const value = kind === META ? (json.value ?? {}) : json.value
    if (value === undefined || value === null) {
      if (kind === RESULT) refuse("a result cannot be left out; throw to withhold it")
      return before.size === 0 && whole === undefined ? undefined : null
    }
    if (!isObject(value)) {
      if (whole !== undefined && JSON.stringify(value) === whole) return undefined
      refuse(`\`${NAMES[kind]}\` must be an object, not ${kindOf(value)}`)
    }
    const flat = []
    const names = Object.keys(value)
    for (const name of names) {
      const member = value[name]
      const was = before.get(name)
      if (member === null && was === "null") continue
      const now = member === undefined || member === null ? undefined : JSON.stringify(member)
      if (now === was) continue
      const why = complain(kind, name, now)
      if (why !== undefined) refuse(why)
      if (now !== undefined) flat.push(name, now)
      else if (was !== undefined) flat.push(name, null)
    }
    if (before.size > 0) {
      const there = new Set(names)
      for (const name of before.keys()) {
        if (there.has(name)) continue
        const why = complain(kind, name, undefined)
        if (why !== undefined) refuse(why)
        flat.push(name, null)
      }
    }
    if (flat.length > 0) return flat
    return whole === undefined ? undefined : null
  }

  class BeforeOutput {
    #headers
    #env
    #meta
    #arguments
    #takes
    constructor(takes) {
      this.#takes = takes
      // A part that does not exist would be lost without a word.
      Object.preventExtensions(this)
    }
    get headers() {
      return (this.#headers ??= makePairs(HEADER, given(HEADERS_GIVEN))).proxy
    }
    set headers(value) {
      this.#headers = replacePairs(HEADER, value)
    }
    get env() {
      return (this.#env ??= makePairs(VARIABLE)).proxy
    }
    set env(value) {
      this.#env = replacePairs(VARIABLE, value)
    }
    get meta() {
      return (this.#meta ??= open(META, META_GIVEN)).value
    }
    set meta(value) {
      this.#meta ??= open(META, META_GIVEN)
      this.#meta.value = value
    }
    get arguments() {
      if (!this.#takes) return undefined
      return (this.#arguments ??= open(ARGUMENT, ARGUMENTS_GIVEN)).value
    }
    set arguments(value) {
      if (!this.#takes) refuse("this method takes no arguments")
      this.#arguments ??= open(ARGUMENT, ARGUMENTS_GIVEN)
      this.#arguments.value = value
    }
    static collect(output) {
      return [flatten(output.#headers), flatten(output.#env), changes(output.#meta), changes(output.#arguments)]
    }
  }

  class AfterOutput {
    #result
    #failed
    constructor(failed) {
      this.#failed = failed
      Object.preventExtensions(this)
    }
    get result() {
      if (this.#failed) return undefined
      return (this.#result ??= open(RESULT, RESULT_GIVEN)).value
    }
    set result(value) {
      if (this.#failed) refuse("the call failed: there is no result to change")
      this.#result ??= open(RESULT, RESULT_GIVEN)
      this.#result.value = value
    }
    static collect(output) {
      return [changes(output.#result)]
    }
  }
  // As if they were properties of each object: `for … in` and `Object.assign` find them.
  for (const Output of [BeforeOutput, AfterOutput]) {
    for (const name of Reflect.ownKeys(Output.prototype)) {
      if (name !== "constructor") Object.defineProperty(Output.prototype, name, { enumerable: true })
    }
  }

  let output
  let event
  const run = (
    factory, which, server, tool, method, sessionID, callID, parentID, host, workspace, trust, takes, failed, ok,
    durationMs, error,
  ) => {
    event = which
    let read = false
    let value
    const input = {
      server, tool, method, sessionID, callID, threadID: sessionID, parentID, host, workspace, trust,
      get arguments() {
        if (!read && takes) value = parse(ARGUMENTS_GIVEN)
        read = true
        return value
      },
    }
    if (event === 0) {
      output = new BeforeOutput(takes)
    } else {
      input.ok = ok
      input.durationMs = durationMs
      input.error = error
      output = new AfterOutput(failed)
    }
    // Who calls is settled: what a hook writes there would be lost without a word.
    Object.freeze(input)
    const returned = factory()[EVENTS[event]](input, output)
    const waits = returned !== null && typeof returned === "object" && typeof returned.then === "function"
    return waits ? Promise.resolve(returned) : undefined
  }
  const finish = () => {
    const done = output
    output = undefined
    return event === 0 ? BeforeOutput.collect(done) : AfterOutput.collect(done)
  }

  // Which events a file handles, and the lines its handlers begin at.
  const handled = (factory) => {
    const handlers = factory()
    if (handlers === null || typeof handlers !== "object") {
      refuse("the default export must be an object of hooks: export default { \"mcp.call.before\": … }")
    }
    const found = []
    for (const name of Reflect.ownKeys(handlers)) {
      const at = EVENTS.indexOf(name)
      if (at < 0) refuse(`${String(name)} is not an event; there are ${EVENTS.join(" and ")}`)
      if (typeof handlers[name] !== "function") refuse(`${name} must be a function, not ${kindOf(handlers[name])}`)
      found.push(at, handlers[name].lineNumber ?? 0)
    }
    return found
  }

  const shown = (value) => {
    try {
      if (typeof value === "string") return value.toWellFormed()
      const text = typeof value === "object" && !(value instanceof Error) ? JSON.stringify(value) : undefined
      return (text ?? String(value)).toWellFormed()
    } catch {
      return "[something that cannot be shown]"
    }
  }
  const say = (level) => (...values) => log(level, values.map(shown).join(" "))
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: false, enumerable: false, configurable: false })
  define("console", { log: say(1), info: say(1), warn: say(2), error: say(3), debug: say(0) })
  const env = {}
  for (let at = 0; at < environment.length; at += 2) env[environment[at]] = environment[at + 1]
  define("process", { env })
  define("crypto", {
    getRandomValues(array) {
      if (!ArrayBuffer.isView(array) || array.byteLength > 65536) refuse("getRandomValues fills a typed array of at most 65536 bytes")
      new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(randomBytes(array.byteLength))
      return array
    },
    randomUUID() {
      const bytes = randomBytes(16)
      bytes[6] = (bytes[6] & 0x0f) | 0x40
      bytes[8] = (bytes[8] & 0x3f) | 0x80
      const hex = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
    },
  })
  if (stateful) {
    let state = {}
    Object.defineProperty(globalThis, "state", {
      get: () => state,
      set: (value) => {
        state = value
      },
      enumerable: true,
      configurable: false,
    })
  }

  // What could block a thread, or keep something from call to call in a place that freezing does not reach.
  delete globalThis.Atomics
  delete globalThis.SharedArrayBuffer
  delete Error.prepareStackTrace
  delete Error.stackTraceLimit
  delete Error.captureStackTrace

  // Freezes everything a hook can reach, so that one call leaves nothing behind for the next.
  const lockdown = () => {
    // Properties that people set on their own objects although a prototype has them: `error.name = …`. Frozen, they
    // could not be set there either, so they become accessors that set the object's own.
    const settable = (prototype, names) => {
      for (const name of names) {
        const descriptor = Reflect.getOwnPropertyDescriptor(prototype, name)
        if (descriptor === undefined || !("value" in descriptor)) continue
        const value = descriptor.value
        Object.defineProperty(prototype, name, {
          get: () => value,
          set(own) {
            if (this === prototype) refuse(`\`${name}\` of a built-in object stays as it is`)
            Object.defineProperty(this, name, { value: own, writable: true, enumerable: true, configurable: true })
          },
          enumerable: false,
          configurable: false,
        })
      }
    }
    settable(Object.prototype, ["constructor", "toString", "valueOf", "toLocaleString", "hasOwnProperty"])
    for (const Kind of [Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, AggregateError]) {
      settable(Kind.prototype, ["name", "message", "constructor", "toString"])
    }
    const work = [
      globalThis, BeforeOutput, AfterOutput, traps,
      async () => {}, function* () {}, async function* () {}, (function* () {})(), (async function* () {})(),
      [].values(), new Map().values(), new Set().values(), "".matchAll(/x/g), ""[Symbol.iterator](),
    ]
    const seen = new Set()
    while (work.length > 0) {
      const reached = work.pop()
      if (seen.has(reached)) continue
      seen.add(reached)
      const prototype = Object.getPrototypeOf(reached)
      if (prototype !== null) work.push(prototype)
      for (const name of Reflect.ownKeys(reached)) {
        const { value, get, set } = Reflect.getOwnPropertyDescriptor(reached, name)
        if (value !== null && (typeof value === "object" || typeof value === "function")) work.push(value)
        if (get !== undefined) work.push(get)
        if (set !== undefined) work.push(set)
      }
      Object.freeze(reached)
    }
  }

  return [run, finish, handled, lockdown]
})
