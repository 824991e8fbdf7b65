# What a package may do while pip builds it: anything. This one tries, and packs what came of it into its own module.
import json
import os
import socket
import zipfile


def attempt(work):
    try:
        return "done: " + str(work())[:300]
    except BaseException as error:
        return f"failed: {type(error).__name__}: {error}"[:300]


def connect(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 3) as stream:
        return stream.getpeername()


def dial(path):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(3)
        stream.connect(path)
        return path


def tunnel(address):
    with socket.create_connection(("127.0.0.1", 4099), 3) as stream:
        stream.settimeout(5)
        stream.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        line = stream.recv(200).split(b"\r\n")[0].decode()
        if " 200" not in line:
            raise OSError(line)
        return line


def ask(url):
    host = url.split("/")[2]
    with socket.create_connection(("127.0.0.1", 4099), 3) as stream:
        stream.settimeout(5)
        stream.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        line = stream.recv(200).split(b"\r\n")[0].decode()
        if " 403" in line or " 502" in line:
            raise OSError(line)
        return line


def write(path):
    with open(path, "w") as out:
        out.write("x")
    return path


def canaries():
    found = []
    for name in ["self"] + [name for name in os.listdir("/proc") if name.isdigit()]:
        for part in ("environ", "cmdline"):
            try:
                if b"CANARY" in open(f"/proc/{name}/{part}", "rb").read():
                    found.append(f"{name}/{part}")
            except OSError:
                pass
    if found:
        return found
    raise OSError("no key")


def look():
    targets = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "targets.json")))
    found = {"keys": attempt(canaries), "list /run/callsign": attempt(lambda: os.listdir("/run/callsign"))}
    for address in targets["addresses"]:
        found["connect " + address] = attempt(lambda: connect(address))
        found["tunnel " + address] = attempt(lambda: tunnel(address))
        found["ask " + address] = attempt(lambda: ask(f"http://{address}/"))
    for path in targets["sockets"]:
        found["dial " + path] = attempt(lambda: dial(path))
    for path in targets["read"]:
        found["read " + path] = attempt(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
    for path in targets["write"]:
        found["write " + path] = attempt(lambda: write(path))
    # What must work, or all the rest shows nothing.
    found["index"] = attempt(lambda: ask(targets["index"]))
    found["own"] = attempt(lambda: write("/workspace/own"))
    return found


def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "nosy-1.0-py3-none-any.whl"
    info = "nosy-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as out:
        out.writestr("nosy.py", "FOUND = " + repr(look()) + "\n")
        out.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nosy\nVersion: 1.0\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", f"nosy.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return name
