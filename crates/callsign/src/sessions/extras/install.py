# Runs in a box of its own, before pip: says which index pip would ask, and becomes pip.
# Nothing of what is to be installed has run yet, so this is the word of the box's own system.
import json
import os
import sys

try:
    import pip  # noqa: F401
except ImportError:
    sys.exit(90)

indexes, default, files = [], None, None
try:
    from pip._internal.models.index import PyPI as built_in

    default, files = built_in.simple_url, built_in.file_storage_domain
except Exception:
    pass
configured = {}
try:
    from pip._internal.configuration import Configuration

    configuration = Configuration(isolated=False)
    configuration.load()
    for key, value in configuration.items():
        for name in ("extra-index-url", "index-url"):
            if key.endswith("." + name):
                configured.setdefault(name, []).extend(str(value).split())
                break
except Exception:
    pass
indexes = configured.get("index-url") or ([default] if default else [])
indexes = indexes + configured.get("extra-index-url", [])
told = {"indexes": indexes[:16], "default": default, "files": files}
print("callsign-index " + json.dumps(told), flush=True)

os.makedirs(os.environ["TMPDIR"], exist_ok=True)
trusted = "/etc/ssl/certs/ca-certificates.crt"
if "PIP_CERT" not in os.environ and os.path.exists(trusted):
    # Whom the system trusts, as later versions of pip have it.
    os.environ["PIP_CERT"] = trusted
words = ["install", "--user", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
words += ["--progress-bar", "off", "--no-warn-script-location", "-r", sys.argv[1]]
os.execv(sys.executable, [sys.executable, "-m", "pip"] + words)
