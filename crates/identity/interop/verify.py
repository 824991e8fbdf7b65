"""Verifies an assertion with PyJWT: verify.py TOKEN JWKS_FILE AUDIENCE"""
import json
import sys

import jwt

token, jwks_file, audience = sys.argv[1:]
with open(jwks_file, encoding="utf-8") as file:
    keys = jwt.PyJWKSet.from_dict(json.load(file))
header = jwt.get_unverified_header(token)
if header["typ"] != "agent-identity+jwt":
    sys.exit("this is no assertion")
key = keys[header["kid"]]
required = ["iss", "aud", "sub", "exp", "iat", "jti"]
claims = jwt.decode(token, key, algorithms=["EdDSA"], audience=audience, options={"require": required})
print(json.dumps(claims))
