"""What a process can do where it is: run in a box by its agent, and outside by the test.

    python3 probe.py INPUT OUTPUT

INPUT is a list of [name, kind, argument …]; OUTPUT gets {name: what came of it}. A probe never ends the others:
what was refused is the text of its error. What is sought comes in hex, so that this file and its input do not hold it.
"""
import base64
import ctypes
import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 3
# Of one file, and of all files that one probe reads.
MOST = 512 << 20
TOTAL = 2 << 30
PIECE = 1 << 20


def called(result):
    """`done`, or why a call of the C library failed."""
    if result >= 0:
        return "done"
    return errno.errorcode.get(ctypes.get_errno(), "unknown")


def in_child(action):
    """What an action says that may change the process it is made in, or end it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = action()
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error))
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    said = b""
    while piece := os.read(reads, 4096):
        said += piece
    os.close(reads)
    _, status = os.waitpid(child, 0)
    return said.decode() if said else f"ended with {status}"


def search(stream, needles):
    found, read, tail = set(), 0, b""
    longest = max(map(len, needles))
    while read < MOST and (piece := stream.read(PIECE)):
        read += len(piece)
        window = tail + piece
        found.update(number for number, needle in enumerate(needles) if needle in window)
        tail = window[-longest:]
    return found, read


class Hits:
    def __init__(self, needles):
        self.needles = [bytes.fromhex(needle) for needle in needles]
        self.places = [[] for _ in needles]
        self.looked = 0
        self.bytes = 0

    def look(self, path):
        try:
            with open(path, "rb", buffering=0) as stream:
                found, read = search(stream, self.needles)
        except OSError:
            return
        self.note(found, path)
        self.looked += 1
        self.bytes += read

    def text(self, text, place):
        self.note({number for number, needle in enumerate(self.needles) if needle in text}, place)
        self.looked += 1
        self.bytes += len(text)

    def note(self, found, place):
        for number in found:
            self.places[number].append(place)

    def told(self):
        return {"places": self.places, "looked": self.looked, "bytes": self.bytes}


def environment(*needles):
    hits = Hits(needles)
    for name, value in os.environb.items():
        hits.text(name + b"=" + value, name.decode(errors="replace"))
    return hits.told()


def processes(what, *needles):
    """`environ` or `cmdline` of every process, this one and its parents included."""
    hits = Hits(needles)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        hits.look(f"/proc/{pid}/{what}")
    return hits.told()


def files(roots, *needles):
    hits = Hits(needles)
    for root in roots:
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                hits.note({n for n, needle in enumerate(hits.needles) if needle in os.fsencode(path)}, path)
                try:
                    regular = stat.S_ISREG(os.lstat(path).st_mode)
                except OSError:
                    continue
                if regular and hits.bytes < TOTAL:
                    hits.look(path)
    return hits.told()


def exchange(stream, request):
    """All that comes back, as long as something does."""
    stream.settimeout(PATIENCE)
    stream.sendall(request)
    said = b""
    try:
        while len(said) < 4 << 20 and (piece := stream.recv(PIECE)):
            said += piece
    except socket.timeout:
        pass
    return said


def request(path, headers, body=b"", method=None):
    method = method or ("POST" if body else "GET")
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def own_token():
    return json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["openai"]["options"]["apiKey"]


def agent_api(port, paths, *needles):
    """The agent's own API, with the password that its environment holds."""
    hits, statuses = Hits(needles), {}
    password = os.environ["OPENCODE_SERVER_PASSWORD"]
    login = base64.b64encode(f"opencode:{password}".encode()).decode()
    for path in paths:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as stream:
            said = exchange(stream, request(path, [f"Authorization: Basic {login}"]))
        statuses[path] = said[9:12].decode(errors="replace")
        hits.text(said, path)
    return {**hits.told(), "statuses": statuses}


def sockets(names, *needles):
    """Whatever the sockets of this box answer to requests of all kinds."""
    hits, statuses = Hits(needles), {}
    token = f"Authorization: Bearer {own_token()}"
    asks = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}]}).encode()
    wrong = json.dumps({"model": "mock", "messages": "", "authorization": "repeat it"}).encode()
    requests = {
        "models": request("/v1/models", [token]),
        "unknown": request("/v1/keys", [token]),
        "root": request("/", [token]),
        "no token": request("/v1/models", []),
        "trace": request("/v1/models", [token], method="TRACE"),
        "chat": request("/v1/chat/completions", [token], asks),
        "wrong": request("/v1/chat/completions", [token], wrong),
        "metrics": request("/metrics", [token]),
        "mcp": request("/mcp/sessions", [token], b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
        "garbage": b"\x00\x01\x02\r\n\r\n",
    }
    for name in names:
        for kind, asked in requests.items():
            try:
                with socket.socket(socket.AF_UNIX) as stream:
                    stream.connect(f"/run/callsign/{name}")
                    said = exchange(stream, asked)
            except OSError as error:
                said = str(error).encode()
            statuses[f"{name} {kind}"] = said[:60].decode(errors="replace").split("\r")[0]
            hits.text(said, f"{name} {kind}")
    return {**hits.told(), "statuses": statuses}


def tcp(host, port):
    try:
        socket.create_connection((host, port), PATIENCE).close()
        return "reached"
    except OSError as error:
        return f"not reached: {error}"


def udp(host, port):
    """Reached where the network takes the packet; nobody may answer."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as stream:
        try:
            stream.connect((host, port))
            stream.send(b"\x12\x34\x01\x00\x00\x01" + bytes(6) + b"\x07example\x03com\x00\x00\x01\x00\x01")
            stream.settimeout(PATIENCE)
            stream.recv(512)
            return "reached"
        except OSError as error:
            return f"not reached: {error}"


def name(host):
    try:
        return f"reached: {socket.getaddrinfo(host, 443)[0][4][0]}"
    except OSError as error:
        return f"not reached: {error}"


def interfaces():
    with open("/proc/net/dev") as lines:
        return sorted(line.split(":")[0].strip() for line in lines if ":" in line)


def routes():
    with open("/proc/net/route") as lines:
        return len(lines.readlines()) - 1


def proxied(port, target):
    """What a proxy says of a way to somewhere else."""
    asked = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as stream:
            said = exchange(stream, asked)
    except OSError as error:
        return f"not reached: {error}"
    return "reached" if said.startswith(b"HTTP/1.1 2") else f"not reached: {said[:60]!r}"


def call_tool(address, path, token, meta):
    """The tool `echo` of a server, in the new era; the first line of the answer."""
    host, port = address.rsplit(":", 1)
    params = {"name": "echo", "arguments": {"text": "x"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"]
    headers += ["Accept: application/json, text/event-stream", f"Authorization: Bearer {token}"]
    with socket.create_connection((host, int(port)), PATIENCE) as stream:
        return exchange(stream, request(path, headers, body))[:60].decode(errors="replace").split("\r")[0]


def unix(path):
    """A path, or `@name` of the abstract namespace."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE)
        try:
            stream.connect("\0" + path[1:] if path.startswith("@") else path)
            return "reached"
        except OSError as error:
            return f"not reached: {error}"


def unix_by_proc(path):
    """The same path below the root, the working directory and the descriptors of every process."""
    ways = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        ways += [f"/proc/{pid}/root{path}", f"/proc/{pid}/cwd/../../../../../../../..{path}"]
        try:
            ways += [f"/proc/{pid}/fd/{fd}{path}" for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            pass
    reached = []
    for way in ways:
        # Long paths of sockets do not fit; a short name for the directory does.
        link = f"/tmp/way-{os.getpid()}"
        try:
            os.symlink(os.path.dirname(way), link)
            if unix(f"{link}/{os.path.basename(way)}") == "reached":
                reached.append(way)
        except OSError:
            pass
        finally:
            if os.path.islink(link):
                os.unlink(link)
    return f"reached: {reached[:3]}" if reached else f"not reached in {len(ways)} ways"


def abstract_names():
    """Names of the abstract namespace that can be seen."""
    with open("/proc/net/unix") as lines:
        return [line.split()[-1] for line in lines if line.split()[-1].startswith("@")]


def write(directory):
    path = os.path.join(directory, f"callsign-probe-{os.getpid()}")
    try:
        with open(path, "w") as file:
            file.write("x")
        os.unlink(path)
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def change(path):
    """Opens an existing file to write, and changes nothing."""
    try:
        os.close(os.open(path, os.O_WRONLY))
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def replace(path):
    """Another file in the place of this one, or none; a copy is put back where that worked."""
    said = []
    for action in (
        lambda: os.rename(path, path + ".old"),
        lambda: os.unlink(path),
        lambda: os.chmod(path, 0o777),
        lambda: os.symlink("/tmp/other", path + ".new"),
        lambda: socket.socket(socket.AF_UNIX).bind(path + ".bound"),
    ):
        try:
            action()
            said.append("done")
        except OSError as error:
            said.append(errno.errorcode.get(error.errno, str(error)))
    return "done" if "done" in said else " ".join(sorted(set(said)))


def mount():
    target = "/tmp/probe-mount"
    os.makedirs(target, exist_ok=True)
    return in_child(lambda: called(LIBC.mount(b"none", target.encode(), b"tmpfs", 0, None)))


def remount():
    return in_child(lambda: called(LIBC.mount(b"none", b"/", None, 32 | 4096, None)))


def unmount():
    return in_child(lambda: called(LIBC.umount2(b"/proc", 2)))


def namespaces():
    """Each kind on its own: user, mount, network, pid."""
    kinds = {"user": 0x10000000, "mount": 0x00020000, "net": 0x40000000, "pid": 0x20000000}
    return {kind: in_child(lambda: called(LIBC.unshare(flag))) for kind, flag in kinds.items()}


def device():
    path = f"/tmp/probe-device-{os.getpid()}"
    said = in_child(lambda: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)) or "done")
    if os.path.exists(path):
        os.unlink(path)
    return said


def root_elsewhere():
    return in_child(lambda: os.chroot("/tmp") or "done")


def become_root():
    return in_child(lambda: (os.setresuid(0, 0, 0), os.setresgid(0, 0, 0)) and "done")


def trace(pid):
    """Attaches and lets go."""

    def attach():
        said = called(LIBC.ptrace(16, int(pid), None, None))
        if said == "done":
            os.waitpid(int(pid), 0x40000000)
            LIBC.ptrace(17, int(pid), None, None)
        return said

    return in_child(attach)


def trace_child():
    child = subprocess.Popen(["sleep", "30"])
    said = trace(child.pid)
    child.kill()
    child.wait()
    return said


def send_signal(pid):
    try:
        os.kill(int(pid), 0)
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def run(*command):
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        said = (ended.stdout + ended.stderr).decode(errors="replace").strip()
        return {"code": ended.returncode, "said": said[:400]}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"code": -1, "said": str(error)}


def status(*names):
    with open("/proc/self/status") as lines:
        found = {line.partition(":")[0]: line.partition(":")[2].strip() for line in lines}
    return {name: found.get(name) for name in names}


def bomb(most):
    """Processes until there is no other; none of them stays."""
    children = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                time.sleep(20)
                os._exit(0)
            children.append(child)
        said = "no limit"
    except OSError as error:
        said = errno.errorcode.get(error.errno, str(error))
    time.sleep(2)
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    return {"count": len(children), "said": said}


def hog(most):
    """Memory that is written to, until somebody ends the process that takes it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        kept = []
        try:
            while len(kept) << 24 < most:
                kept.append(bytearray(os.urandom(1 << 10) * (1 << 14)))
                os.write(writes, b"x")
        except MemoryError:
            pass
        os._exit(0)
    os.close(writes)
    took = 0
    while piece := os.read(reads, 4096):
        took += len(piece)
    _, status = os.waitpid(child, 0)
    return {"took": took << 24, "killed": os.WIFSIGNALED(status)}


def with_decoy(decoy, name, *needles):
    """The same look while another process has something to find in its arguments and its environment."""
    text = bytes.fromhex(decoy).decode()
    # One process that waits by itself: what it started would hold the agent's output.
    child = subprocess.Popen(["sh", "-c", "read _", "sh", text], stdin=subprocess.PIPE, env={"DECOY": text})
    time.sleep(0.2)
    try:
        return processes(name, *needles)
    finally:
        child.kill()
        child.wait()


PROBES = {
    probe.__name__: probe
    for probe in (
        abstract_names, agent_api, become_root, bomb, call_tool, change, device, environment, files, hog, interfaces,
        mount, name, namespaces, processes, proxied, remount, replace, root_elsewhere, routes, run, send_signal,
        sockets, status, tcp, trace, trace_child, udp, unix, unix_by_proc, unmount, with_decoy, write,
    )
}


def main(asked, answers):
    with open(asked) as file:
        probes = json.load(file)
    said = {}
    for title, kind, *arguments in probes:
        try:
            said[title] = PROBES[kind](*arguments)
        except Exception as error:  # One that fails otherwise is told, and hides none of the others.
            said[title] = f"failed: {type(error).__name__}: {re.sub(r'[^ -~]', '?', str(error))}"
    with open(answers + ".new", "w") as file:
        json.dump(said, file)
    os.rename(answers + ".new", answers)


main(*sys.argv[1:3])
