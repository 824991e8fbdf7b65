// Callsign for OpenCode 1.x: tells MCP servers which session calls them.
//
//   config               every `mcp` entry is started through `callsign wrap`, which is handed a key
//   event                sessions and running tool calls are noted
//   tool.execute.before  the call's arguments get a seal: who calls, authenticated with that key
//   shell.env            the agent's shell gets the same session id and title as the servers
//
// What must hold: a hook never throws (OpenCode would refuse the call), and a seal is put in only
// after the call's part is `running`. OpenCode copies the arguments into its history at that moment,
// so what is added later reaches the server and neither the history nor the model. `wrap` takes the
// seal out again. OpenCode 2.x knows none of these hooks and needs no seal.
//
// In a box of Callsign's own the entries stay as they are: they lead to the gateway already, and the
// box was given the key.
import childProcess from "node:child_process"
import { createHash, createHmac, randomBytes } from "node:crypto"
import { EventEmitter, once } from "node:events"
import { readFileSync } from "node:fs"
import { homedir } from "node:os"
import { basename, join } from "node:path"

const SETTINGS = {} // filled in by callsign install

const ARGUMENT = "__callsign"
const KEY_VARIABLE = "CALLSIGN_SEAL_KEY"
const HEADERS_VARIABLE = "CALLSIGN_ENTRY_HEADERS"
const CALL_WAIT_MS = 2000 // for each thing that a call may have to wait for
const BACKGROUND_WAIT_MS = 60000
const MEMORY = 4096 // of sessions, calls and seals each; the oldest are forgotten
// Tools of OpenCode itself that `tool.definition` does not tell of.
const RESOURCE_TOOLS = ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]

// Shared by the plugin's instances, one per directory: session ids are unique among all of them.
const sessions = new Map() // session id → what OpenCode says about it
const running = new Map() // session and call id → the call's part is running
const starts = new EventEmitter().setMaxListeners(0) // emits session and call id once it is
const issued = new Map() // seals of ours, to know one in the history from what a model made up
const shownKeys = new Map() // the key in the configuration → its wrapped entry
let stopped = false // no more seals
let sawRunning = false
let missed = 0 // calls that were never seen running
let failed = false // a hook, which has been logged

// Whoever the agent starts has no use for it.
const boxKey = SETTINGS.box ? Buffer.from(process.env[KEY_VARIABLE] ?? "", "base64url") : undefined
if (boxKey) delete process.env[KEY_VARIABLE]

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value)
const callKey = (sessionID, callID) => `${sessionID} ${callID}`
const openCodeName = (name) => name.replace(/[^a-zA-Z0-9_-]/g, "_")

function remember(map, key, value) {
  map.delete(key)
  map.set(key, value)
  if (map.size > MEMORY) map.delete(map.keys().next().value)
}

const within = (ms, promise, otherwise) =>
  Promise.race([promise, new Promise((resolve) => setTimeout(resolve, ms, otherwise).unref())])

// The answer of OpenCode's own API, or undefined. It never throws. A busy OpenCode takes seconds.
const ask = (question, patience = CALL_WAIT_MS) =>
  within(patience, Promise.resolve().then(question).then((it) => it?.data, () => undefined))

// Names that Callsign accepts stay as they are. Any other name, and any that looks like the result
// of this function, gets a digest of itself, so that two entries never share a name.
function serverName(entry) {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(entry) && !/-x[0-9a-f]{24}$/.test(entry)) return entry
  const stem = entry.replace(/[^A-Za-z0-9._-]/g, "_").replace(/^[^A-Za-z0-9]+/, "").slice(0, 38)
  return `${stem || "server"}-x${createHash("sha256").update(entry).digest("hex").slice(0, 24)}`
}

// Only OpenCode can log in and holds the tokens, so entries that use OAuth cannot be started by us.
// An `oauth` object says so. Nothing said means "if the server asks for it", and most never do: that
// one did shows in what OpenCode has stored of it. `opencode mcp auth` has to see it as it is.
function usesOAuth(name, entry) {
  if (entry.oauth === false) return false
  if (entry.oauth || process.argv[2] === "mcp") return true
  try {
    const data = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share")
    const logins = JSON.parse(readFileSync(join(data, "opencode", "mcp-auth.json"), "utf8"))
    return logins[name]?.serverUrl === entry.url
  } catch {
    return false // No file: no server has asked.
  }
}

function wrapCommand(name, options) {
  const start = [SETTINGS.command || "callsign", "wrap", ...(SETTINGS.args || [])]
  const entry = serverName(name) === name ? [] : ["--entry", name]
  return [...start, "--name", serverName(name), "--host", "opencode", ...entry, ...options]
}

// A `callsign wrap` or `callsign mcp` of the user's own keeps its options and learns what it cannot know by itself.
function completeCommand(name, command) {
  const options = command.slice(2, command.includes("--") ? command.indexOf("--") : undefined)
  const has = (option) => options.some((word) => word === option || word.startsWith(`${option}=`))
  const named = options[options.indexOf("--name") + 1] === name || options.includes(`--name=${name}`)
  const host = has("--host") ? [] : ["--host", "opencode"]
  const entry = named || has("--entry") ? [] : ["--entry", name]
  return [...command.slice(0, 2), ...host, ...entry, ...command.slice(2)]
}

// The entry as OpenCode shall start it, or undefined if it stays as it is. `enabled`, `timeout` and
// `cwd` are kept: a disabled entry is wrapped too, because it can be switched on at any time.
function wrapEntry(name, entry) {
  const words = Array.isArray(entry.command) ? entry.command : []
  if (entry.type === "local" && basename(String(words[0])) === "callsign" && ["wrap", "mcp"].includes(words[1])) {
    return { ...entry, command: completeCommand(name, words), environment: { ...entry.environment } }
  }
  if (entry.type === "local" && words.length > 0) {
    // OpenCode lets its own binary run npm packages, by this variable and only under this name.
    const own = words[0] === "opencode" ? { BUN_BE_BUN: "1" } : {}
    const environment = { ...own, ...entry.environment }
    const names = Object.keys(environment).filter((it) => it && !/[,=]/.test(it) && it !== KEY_VARIABLE)
    const pass = names.length > 0 ? ["--pass-env", names.join(",")] : []
    return { ...entry, command: wrapCommand(name, ["--inherit-env", "host", ...pass, "--", ...words]), environment }
  }
  if (entry.type !== "remote" || typeof entry.url !== "string" || usesOAuth(name, entry)) return undefined
  const { url, headers, oauth: _, ...rest } = entry
  const some = isObject(headers) && Object.keys(headers).length > 0
  const options = [...(some ? ["--headers-env", HEADERS_VARIABLE] : []), "--allow-private", "--url", url]
  const environment = some ? { [HEADERS_VARIABLE]: JSON.stringify(headers) } : {}
  return { ...rest, type: "local", command: wrapCommand(name, options), environment }
}

// OpenCode shows its configuration, keys included, to whoever may use its API, the agent's shell
// for one. So the key in the configuration is replaced by another at the moment the process starts.
// Should OpenCode ever start processes some other way, this sees none of them, and the seals go on
// with the key that is in the configuration.
let watchesStarts = false
function watchStarts() {
  if (watchesStarts) return
  watchesStarts = true
  const spawn = childProcess.spawn
  childProcess.spawn = function (command, words, options) {
    const entry = shownKeys.get(options?.env?.[KEY_VARIABLE])
    // Only our own command line gets the key, in an environment that nobody else had a say in.
    const ours = entry && JSON.stringify([command].concat(words)) === JSON.stringify(entry.command)
    if (!ours) return spawn.apply(this, arguments)
    const env = { ...process.env, ...entry.environment, [KEY_VARIABLE]: entry.hidden.toString("base64url") }
    const child = spawn.call(this, command, words, { ...options, env })
    entry.key = entry.hidden
    return child
  }
}

// Wraps the entries of one configuration and returns the wrapped ones by name. The file may be
// installed for the user and for the project: the copy that comes first takes the configuration.
function wrapAll(config) {
  if (boxKey) return new Map(Object.keys(config?.mcp ?? {}).map((name) => [name, { key: boxKey }]))
  const taken = (globalThis[Symbol.for("dev.callsign.opencode.taken")] ??= new WeakSet())
  const wrapped = new Map()
  if (!isObject(config?.mcp) || taken.has(config)) return wrapped
  taken.add(config)
  const entries = Object.entries(config.mcp).map(([name, entry]) => {
    const now = isObject(entry) ? wrapEntry(name, entry) : undefined
    if (!now) return [name, entry]
    const key = randomBytes(32)
    const shown = (now.environment[KEY_VARIABLE] = key.toString("base64url"))
    const { command, environment } = structuredClone(now)
    wrapped.set(name, { key, shown, hidden: randomBytes(32), command, environment })
    shownKeys.set(shown, wrapped.get(name))
    return [name, now]
  })
  // A new object: the old one may belong to other directories' configurations as well.
  config.mcp = Object.fromEntries(entries)
  if (wrapped.size > 0) watchStarts()
  return wrapped
}

function noteCall(part) {
  const key = callKey(part.sessionID, part.callID)
  // Call ids are unique within one answer of the model only: an ended call must not vouch for the
  // next one of the same id.
  if (part.state?.status !== "running") return void running.delete(key)
  sawRunning = true
  remember(running, key, true)
  starts.emit(key)
}

function untilRunning(key) {
  if (running.has(key)) return true
  return once(starts, key, { signal: AbortSignal.timeout(CALL_WAIT_MS) }).then(() => true, () => false)
}

function seal(key, payload) {
  const text = `v1.${Buffer.from(JSON.stringify(payload)).toString("base64url")}`
  const sealed = `${text}.${createHmac("sha256", key).update(text).digest("base64url")}`
  remember(issued, sealed, true)
  return sealed
}

const noteSession = ({ id, title, parentID, directory }) => remember(sessions, id, { title, parentID, directory })

async function sessionOf(client, id) {
  const info = sessions.has(id) ? undefined : await ask(() => client.session.get({ path: { id } }))
  // An event that came meanwhile is newer than the answer.
  if (info?.id === id && !sessions.has(id)) noteSession(info)
  return sessions.get(id)
}

// The top of the chain of parents. Undefined without a parent, or where a part of the chain is unknown.
async function rootOf(client, session) {
  let at = session?.parentID
  for (let depth = 0; at && depth < 32; depth += 1) {
    const info = await sessionOf(client, at)
    if (!info?.parentID) return info && at
    at = info.parentID
  }
}

export const CallsignPlugin = async (input) => {
  const { client, directory } = input ?? {}
  let wrapped = new Map() // entry name → key and command line
  let names = [] // of all entries in the configuration
  const ownTools = new Set(RESOURCE_TOOLS) // OpenCode's, and custom ones: whatever is no MCP tool
  const decided = new Map() // tool → promise of its wrapped entry, or of undefined

  const log = (level, text) => ask(() => client.app.log({ body: { service: "callsign", level, message: text } }))
  function stop(reason) {
    if (stopped) return
    stopped = true
    log("error", `callsign: ${reason}: no more seals until OpenCode is restarted`)
  }

  // Called with each argument of our name that OpenCode keeps. A seal of ours there means that it now
  // copies arguments later than it used to; calls without identity are better than seals shown around.
  const check = (kept) => issued.has(kept) && stop("a seal was found in the history")

  // OpenCode calls a tool `<entry>_<tool>`. The longest entry that fits has it, be it wrapped or not.
  function entryOf(tool) {
    const longest = (all) =>
      all.filter((it) => tool.startsWith(`${openCodeName(it)}_`)).sort((a, b) => b.length - a.length)[0]
    const name = longest(names)
    const entry = ownTools.has(tool) ? undefined : wrapped.get(name)
    if (!entry || !tool.slice(name.length + 1).includes("_")) return entry
    // Servers can be added while OpenCode runs, and one with a longer name might have this tool.
    if (!decided.has(tool)) {
      const servers = ask(() => client.mcp.status(), BACKGROUND_WAIT_MS)
      remember(decided, tool, servers.then((it) => wrapped.get(longest([...names, ...Object.keys(it ?? {})]))))
    }
    return within(CALL_WAIT_MS, decided.get(tool), entry)
  }

  async function putSeal({ tool, sessionID, callID }, args) {
    const question = stopped || !isObject(args) ? undefined : entryOf(tool)
    if (!question) return
    // A call out of a script (code mode) is `<call>/<number>`; the script's part is what runs.
    const calls = [callID, callID.replace(/\/\d+$/, "")].map((it) => untilRunning(callKey(sessionID, it)))
    const [entry, session, seen] = await Promise.all([question, sessionOf(client, sessionID), Promise.race(calls)])
    const root = await rootOf(client, session)
    // Without the event every call would wait in vain.
    if (!seen && !sawRunning && ++missed >= 3) stop("OpenCode does not tell when a call runs")
    if (!entry || !seen || stopped) return
    const who = { session: sessionID, parent: session?.parentID, root, title: sessions.get(sessionID)?.title }
    const what = { call: callID, tool, directory: session?.directory ?? directory }
    const when = { at: Date.now(), nonce: randomBytes(18).toString("base64url") }
    args[ARGUMENT] = seal(entry.key, { ...who, ...what, ...when })
  }

  // A hook that throws stops what OpenCode was about to do.
  const safely = (hook) => async (...all) => {
    try {
      await hook(...all)
    } catch (error) {
      if (!failed) log("warn", `callsign: a hook failed, and further failures are not logged: ${error}`)
      failed = true
    }
  }

  return {
    config: safely((config) => {
      names = Object.keys(config?.mcp ?? {})
      wrapped = wrapAll(config)
    }),
    event: safely(({ event }) => {
      const { info, part } = event?.properties ?? {}
      if (event.type === "session.created" || event.type === "session.updated") noteSession(info)
      if (event.type === "session.deleted") sessions.delete(info.id)
      if (event.type !== "message.part.updated" || part?.type !== "tool") return
      const script = part.state?.metadata?.toolCalls
      for (const call of [part.state, ...(Array.isArray(script) ? script : [])]) check(call?.input?.[ARGUMENT])
      noteCall(part)
    }),
    "tool.definition": safely(({ toolID }) => void ownTools.add(toolID)),
    "tool.execute.before": safely((call, output) => putSeal(call, output?.args)),
    // The call is over: hooks of other plugins need not see the seal.
    "tool.execute.after": safely(({ args }) => isObject(args) && delete args[ARGUMENT]),
    // Last defence: whatever is in the history, the model is not sent it.
    "experimental.chat.messages.transform": safely((_, { messages }) => {
      for (const { type, state } of messages.flatMap((it) => it.parts)) {
        if (type !== "tool" || !isObject(state?.input)) continue
        check(state.input[ARGUMENT])
        delete state.input[ARGUMENT]
      }
    }),
    "shell.env": safely(async ({ sessionID }, { env }) => {
      if (!sessionID) return
      env.OPENCODE_SESSION_ID = sessionID
      const title = (await sessionOf(client, sessionID))?.title
      if (title && !title.includes("\0")) env.OPENCODE_SESSION_TITLE = title
    }),
    dispose: safely(() => {
      for (const entry of wrapped.values()) shownKeys.delete(entry.shown)
    }),
  }
}
