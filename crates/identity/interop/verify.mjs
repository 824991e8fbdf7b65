// Verifies an assertion with jose: node verify.mjs TOKEN JWKS_FILE AUDIENCE
import { readFile } from "node:fs/promises"
import { createLocalJWKSet, jwtVerify } from "jose"

const [token, jwksFile, audience] = process.argv.slice(2)
const keys = createLocalJWKSet(JSON.parse(await readFile(jwksFile, "utf8")))
const { payload } = await jwtVerify(token, keys, {
  algorithms: ["EdDSA"],
  typ: "agent-identity+jwt",
  audience,
  maxTokenAge: 60,
  requiredClaims: ["sub", "jti", "exp"],
})
console.log(JSON.stringify(payload))
