"""Opens a session of the old era at a server, as any program in a box can, and calls a tool in it.

    python3 open.py INPUT OUTPUT
"""
import json
import os
import socket
import sys

TOKEN = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["openai"]["options"]["apiKey"]


def post(method, params, *headers):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = ["POST /mcp/std HTTP/1.1", "Host: 127.0.0.1:4098", "Connection: close", "Content-Type: application/json"]
    head += ["Accept: application/json, text/event-stream", f"Content-Length: {len(body)}"]
    head += [f"Authorization: Bearer {TOKEN}", *headers]
    with socket.create_connection(("127.0.0.1", 4098), 10) as stream:
        stream.sendall("\r\n".join([*head, "", ""]).encode() + body)
        said = b""
        while piece := stream.recv(1 << 16):
            said += piece
    return said.split(b"\r\n\r\n")[0].decode().split("\r\n")


client = {"name": "open", "version": "1"}
lines = post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
[session] = [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith("mcp-session-id:")]
called = post("tools/call", {"name": "echo", "arguments": {"text": "opened"}}, f"Mcp-Session-Id: {session}")
with open(sys.argv[2], "w") as file:
    json.dump({"session": session, "called": called[0]}, file)
