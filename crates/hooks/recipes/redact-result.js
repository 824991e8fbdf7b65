// recipes/redact-result.js
// Takes keys and e-mail addresses out of what a server answers, before the model sees it.
//
// Each row: what a text must have in it to be worth a search, the pattern, what is put there. The look
// behind keeps a search from starting anew at each letter of a long word, which would take too long.
const SECRETS = [
  ["sk-", /\bsk-[\w-]{8,}/g, "[key]"],
  ["@", /(?<![\p{L}\d_.+-])[\p{L}\d_.+-]+@[\p{L}\d-]+(?:\.[\p{L}\d-]+)+/gu, "[e-mail]"],
]

const redactText = (text) =>
  SECRETS.reduce((left, [mark, pattern, by]) => (left.includes(mark) ? left.replace(pattern, by) : left), text)

function redact(value) {
  if (typeof value === "string") return redactText(value)
  if (Array.isArray(value)) return value.map(redact)
  if (typeof value !== "object" || value === null) return value
  // Names of members as well: a table by e-mail address is a list of addresses.
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [redactText(name), redact(inner)]))
}

export default {
  "mcp.call.after": (input, output) => {
    // A list describes tools. A call that failed as a whole has no result.
    if (input.method === "tools/list" || output.result === undefined) return
    // Of tools/call the first two, then those of resources/read and prompts/get.
    for (const part of ["content", "structuredContent", "contents", "messages"]) {
      if (part in output.result) output.result[part] = redact(output.result[part])
    }
  },
}
