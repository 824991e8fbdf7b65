// Runs first in every context, before any hook, and makes what hooks see: their input and output, `console`,
// `process`, `crypto` and `state`. What comes back from here is checked once more on the other side, so a hook that
// tampers with it in a context of its own gains nothing.
//
// outside: functions for headers and then for variables; put(target, name, value) throws where one cannot be.
// complain(kind, name): why a name cannot be, or undefined.
// given(which): what the call brings along; asked for only when a hook looks at it.
(function (outside, complain, given, log, randomBytes, environment, stateful) {
  "use strict"

  const META = 2, ARGUMENT = 3, RESULT = 4
  const ARGUMENTS_GIVEN = 1, META_GIVEN = 2, RESULT_GIVEN = 3
  const EVENTS = ["mcp.call.before", "mcp.call.after"]

  const refuse = (why) => {
    throw new TypeError(why)
  }
  const kindOf = (value) => (Array.isArray(value) ? "a list" : value === null ? "null" : `a value of type ${typeof value}`)

  // Headers and variables: names and strings, which lie outside. What is set here is checked and kept there.
  const makePairs = (what, put, get, names, clear) => {
    const proxy = new Proxy(Object.create(Object.prototype), {
      get(target, name) {
        const value = typeof name === "string" ? get(name) : undefined
        return value === undefined ? Reflect.get(Object.prototype, name) : value
      },
      has: (target, name) => typeof name === "string" && get(name) !== undefined,
      set: put,
      deleteProperty: (target, name) => typeof name !== "string" || get(name) === undefined || put(target, name, undefined),
      ownKeys: () => names(),
      getOwnPropertyDescriptor(target, name) {
        const value = typeof name === "string" ? get(name) : undefined
        return value === undefined ? undefined : { value, writable: true, enumerable: true, configurable: true }
      },
      defineProperty(target, name, descriptor) {
        if ("get" in descriptor || "set" in descriptor) refuse(`\`${String(name)}\` must be a plain value`)
        return put(target, name, descriptor.value)
      },
      setPrototypeOf: () => refuse("this object's prototype stays as it is"),
      preventExtensions: () => refuse("this object cannot be frozen"),
    })
    const replace = (value) => {
      const absent = value === undefined || value === null
      if (!absent && (typeof value !== "object" || Array.isArray(value))) refuse(`\`${what}\` must be an object, not ${kindOf(value)}`)
      const prototype = absent ? null : Object.getPrototypeOf(value)
      // The entries of a Map would be lost without a word.
      if (prototype !== null && prototype !== Object.prototype) refuse(`\`${what}\` must be a plain object`)
      // Read before anything is taken out: it may be these themselves.
      const pairs = Reflect.ownKeys(value ?? {}).map((name) => [name, value[name]])
      clear()
      for (const [name, member] of pairs) put(undefined, name, member)
    }
    return { proxy, replace }
  }
  const ofHeaders = makePairs("headers", ...outside.slice(0, 4))
  const ofEnv = makePairs("env", ...outside.slice(4))

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
      const why = complain(kind, name)
      if (why !== undefined) refuse(why)
      if (now !== undefined) flat.push(name, now)
      else if (was !== undefined) flat.push(name, null)
    }
    if (before.size > 0) {
      const there = new Set(names)
      for (const name of before.keys()) {
        if (there.has(name)) continue
        const why = complain(kind, name)
        if (why !== undefined) refuse(why)
        flat.push(name, null)
      }
    }
    if (flat.length > 0) return flat
    return whole === undefined ? undefined : null
  }

  // Both are closed to other members: what is set under another name would be lost without a word.
  const ITS_META = 0, ARGUMENTS = 1, TAKES = 2
  let collectBefore, collectAfter
  class BeforeOutput {
    #parts
    constructor(takes) {
      this.#parts = [undefined, undefined, takes]
      Object.preventExtensions(this)
    }
    get headers() {
      return ofHeaders.proxy
    }
    set headers(value) {
      ofHeaders.replace(value)
    }
    get env() {
      return ofEnv.proxy
    }
    set env(value) {
      ofEnv.replace(value)
    }
    get meta() {
      return (this.#parts[ITS_META] ??= open(META, META_GIVEN)).value
    }
    set meta(value) {
      this.#parts[ITS_META] ??= open(META, META_GIVEN)
      this.#parts[ITS_META].value = value
    }
    get arguments() {
      if (!this.#parts[TAKES]) return undefined
      return (this.#parts[ARGUMENTS] ??= open(ARGUMENT, ARGUMENTS_GIVEN)).value
    }
    set arguments(value) {
      if (!this.#parts[TAKES]) refuse("this method takes no arguments")
      this.#parts[ARGUMENTS] ??= open(ARGUMENT, ARGUMENTS_GIVEN)
      this.#parts[ARGUMENTS].value = value
    }
    // Not a method: a hook would find it.
    static {
      collectBefore = (output) => {
        const parts = output.#parts
        return [changes(parts[ITS_META]), changes(parts[ARGUMENTS])]
      }
    }
  }

  class AfterOutput {
    #failed
    #result
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
    static {
      collectAfter = (output) => [changes(output.#result)]
    }
  }
  // As if they were properties of each object: `for … in` and `Object.assign` find them.
  for (const Output of [BeforeOutput, AfterOutput]) {
    for (const name of Reflect.ownKeys(Output.prototype)) {
      if (name !== "constructor") Object.defineProperty(Output.prototype, name, { enumerable: true })
    }
    delete Output.prototype.constructor
  }

  // The input: names for the values that a call comes with, in their order. Nothing is made for a name that nobody
  // looks at. Who calls is settled: what a hook writes there would be lost without a word.
  const INPUT = ["server", "tool", "method", "sessionID", "callID", "parentID", "host", "workspace", "trust", "arguments"]
  const AFTER_INPUT = ["ok", "durationMs", "error"]
  const settle = () => refuse("the input cannot be changed; use the output")
  const makeInput = (own) => {
    const index = Object.assign(Object.create(null), { threadID: INPUT.indexOf("sessionID") })
    own.forEach((name, at) => {
      index[name] = at
    })
    const names = [...INPUT.slice(0, 5), "threadID", ...own.slice(5)]
    const at = index.arguments
    const look = ({ values }, name) => {
      const place = typeof name === "string" ? index[name] : undefined
      if (place === undefined) return Reflect.get(Object.prototype, name)
      if (place === at && values[at] === true) values[at] = parse(ARGUMENTS_GIVEN)
      return values[place] === false && place === at ? undefined : values[place]
    }
    return {
      get: look,
      has: (_, name) => typeof name === "string" && name in index,
      ownKeys: () => names,
      getOwnPropertyDescriptor(target, name) {
        if (typeof name !== "string" || !(name in index)) return undefined
        return { value: look(target, name), writable: true, enumerable: true, configurable: true }
      },
      set: settle, defineProperty: settle, deleteProperty: settle, setPrototypeOf: settle, preventExtensions: settle,
    }
  }
  const INPUTS = [makeInput(INPUT), makeInput([...INPUT, ...AFTER_INPUT])]

  let output
  let event
  // values: those of INPUT, with whether there are arguments in their place, and then those of AFTER_INPUT.
  const run = (factory, which, failed, ...values) => {
    event = which
    output = event === 0 ? new BeforeOutput(values[INPUT.length - 1]) : new AfterOutput(failed)
    const returned = factory()[EVENTS[event]](new Proxy({ values }, INPUTS[event]), output)
    const waits = returned !== null && typeof returned === "object" && typeof returned.then === "function"
    return waits ? Promise.resolve(returned) : undefined
  }
  const finish = () => {
    const done = output
    output = undefined
    return event === 0 ? collectBefore(done) : collectAfter(done)
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
  // Helpers of iterators call each other without looking at the stack.
  const iterators = Object.getPrototypeOf(Object.getPrototypeOf([].values()))
  for (const name of Object.getOwnPropertyNames(iterators)) delete iterators[name]
  delete globalThis.Iterator

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
      globalThis, BeforeOutput, AfterOutput, ...INPUTS,
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
