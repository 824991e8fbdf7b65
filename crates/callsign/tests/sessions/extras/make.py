# Makes what an index offers: a wheel, and a source whose build looks around. Arguments: directory, what to look for.
import io
import json
import os
import sys
import tarfile
import zipfile

directory, targets = sys.argv[1], sys.argv[2]

GREET = "def hello():\n    return 'hello from greet VERSION'\n\ndef main():\n    print(hello())\n"


def wheel(name, version, files, scripts=""):
    info = f"{name}-{version}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if scripts:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record
    with zipfile.ZipFile(os.path.join(directory, f"{name}-{version}-py3-none-any.whl"), "w") as out:
        for path, text in files.items():
            out.writestr(path, text)


for version in ("1.0", "2.0"):
    wheel("greet", version, {"greet.py": GREET.replace("VERSION", version)}, "greet-now = greet:main")

here = os.path.dirname(os.path.abspath(__file__))
source = {
    "nosy-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: nosy\nVersion: 1.0\n",
    "nosy-1.0/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "nosy_build"\nbackend-path = ["."]\n',
    "nosy-1.0/nosy_build.py": open(os.path.join(here, "nosy_build.py")).read(),
    "nosy-1.0/targets.json": open(targets).read(),
}
json.loads(source["nosy-1.0/targets.json"])
with tarfile.open(os.path.join(directory, "nosy-1.0.tar.gz"), "w:gz") as out:
    for path, text in source.items():
        entry = tarfile.TarInfo(path)
        data = text.encode()
        entry.size = len(data)
        out.addfile(entry, io.BytesIO(data))
