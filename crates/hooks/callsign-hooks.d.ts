// Types of Callsign's hooks, for editors. Put this file beside the hook and write above its default export:
//
//   /** @type {import("./callsign-hooks").Hooks} */
//   export default { … }
//
// A hook runs in a small engine: there is no DOM and no Node. With `"lib": ["es2023"], "types": []` in
// jsconfig.json an editor offers what is there and nothing else.

/** The requests for which hooks run. */
export type Method = "tools/call" | "tools/list" | "prompts/get" | "resources/read"

/** How well it is known who calls, weakest first. */
export type Trust = "none" | "declared" | "host" | "bound"

/** A map whose `null` and `undefined` values are left out. */
export type Strings = Record<string, string | null | undefined>

/** One request before it is sent, and who makes it. */
export interface BeforeInput {
  /** The server's name in the configuration. */
  readonly server: string
  /** The tool's or prompt's name, or the resource's uri; undefined for lists. */
  readonly tool: string | undefined
  /** The request's method. */
  readonly method: Method
  /** The session that calls: a subagent's own, where one calls. */
  readonly sessionID: string | undefined
  /** The host's own id of the call, else one of Callsign's. */
  readonly callID: string
  /** The same as `sessionID`, by the name that Callsign has for it. */
  readonly threadID: string | undefined
  /** The thread that started this one. */
  readonly parentID: string | undefined
  /** The agent program, such as `opencode`, `codex` or `claude-code`. */
  readonly host: string | undefined
  /** The directory that the session works in, resolved and beneath an allowed root. */
  readonly workspace: string | undefined
  /** How well all of this is known. */
  readonly trust: Trust
  /** The arguments that will be sent; undefined where the method has none. To change them, use the output. */
  readonly arguments: { readonly [name: string]: any } | undefined
}

/** What the request will be sent with. `null` and `undefined` are left out. */
export interface BeforeOutput {
  /** Starts with the configured headers. Names in any letter case are one; dropped for a stdio server. */
  headers: Strings
  /** The request's `_meta` as the host sent it, without Callsign's own keys. */
  meta: Record<string, any>
  /** Starts like those of the input. What is sent and signed is what stands here in the end. */
  arguments: Record<string, any> | null | undefined
  /** Starts empty. Variables for the process of a stdio server, if this call starts a new one. */
  env: Strings
}

/** The same request, after it was answered. */
export interface AfterInput extends BeforeInput {
  /** False for a JSON-RPC error and for a result with `isError: true`. */
  readonly ok: boolean
  /** From sending the request to its answer. */
  readonly durationMs: number
  /** The error's text, where `ok` is false. */
  readonly error: string | undefined
}

/** What the host will be answered. */
export interface AfterOutput {
  /** The result. Undefined after a JSON-RPC error; setting it then throws. */
  result: any
}

/** The default export of a hook. Any other key is a mistake that keeps the file from loading. */
export interface Hooks {
  /** Runs before a request is sent. A throw refuses the call with its message. */
  "mcp.call.before"?: (input: BeforeInput, output: BeforeOutput) => void | Promise<void>
  /** Runs before an answer is passed on. A throw withholds the result and answers with its message. */
  "mcp.call.after"?: (input: AfterInput, output: AfterOutput) => void | Promise<void>
}

declare global {
  /** Kept from call to call, for this file alone. Bounded, and gone on reload. */
  var state: Record<string, any>

  /** Only the environment. */
  var process: {
    /** The variables that `[hooks] env` names, as far as they are set. Frozen. */
    readonly env: Readonly<Record<string, string | undefined>>
  }

  // Interfaces, so that they merge with those of lib.dom where an editor loads it.

  /** Goes to Callsign's log, with the call's ids. */
  interface Console {
    /** Logs at level info. */
    log(...data: any[]): void
    /** Logs at level info. */
    info(...data: any[]): void
    /** Logs at level warn. */
    warn(...data: any[]): void
    /** Logs at level error. */
    error(...data: any[]): void
    /** Logs at level debug. */
    debug(...data: any[]): void
  }
  var console: Console

  /** Only what is random. */
  interface Crypto {
    /** A new version 4 UUID. */
    randomUUID(): `${string}-${string}-${string}-${string}-${string}`
    /** Fills a typed array of integers and returns it. */
    getRandomValues<T extends ArrayBufferView>(array: T): T
  }
  var crypto: Crypto
}
