"""What the client sends ahead of its request: the supervisor's sources, and the few lines that unpack them."""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from pathlib import Path

from fmha.harness.supervisor import GREETING

# All that the login shell of the account sees; the rest travels as data. What runs is of the standard library alone, so
# the interpreter need not look at its environment or for packages.
COMMAND = "-ISc 'import sys;exec(eval(sys.stdin.buffer.readline()))'"

_UNPACK = """
import sys, os, gc, json, zlib
spec = json.loads(sys.stdin.buffer.readline())
data = sys.stdin.buffer.read(spec["size"])
print(spec["greeting"], end="", flush=True)
def refuse(what, step):
    print(json.dumps({"error": what, "next": step, "usage": False}), flush=True)
    sys.exit(0)
if sys.version_info < (3, 11):
    refuse("Python %d.%d on the host is older than 3.11" % sys.version_info[:2], "set python to a newer one")
os.umask(0o077)
folder = os.path.abspath(os.path.expanduser(spec["folder"]))
home = os.path.join(folder, "bin", spec["digest"])
try:
    if not os.path.isdir(home):
        import shutil, tempfile
        os.makedirs(os.path.dirname(home), exist_ok=True)
        part = tempfile.mkdtemp(dir=os.path.dirname(home))
        try:
            for name, text in json.loads(zlib.decompress(data)).items():
                path = os.path.join(part, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            os.rename(part, home)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            if not os.path.isdir(home):
                raise
except OSError as error:
    refuse("the working folder %s cannot be used: %s" % (folder, error.strerror), "free space or correct folder")
sys.path.insert(0, home)
gc.disable()  # nothing of a module is garbage, and to look takes a seventh of the time
from fmha.harness.supervisor.agent import main
gc.freeze()
gc.enable()
sys.exit(main(folder))
"""


def preamble(folder: str) -> bytes:
    """Everything that goes over the line before the request. `folder` is the host's working folder."""
    data, digest = _package()
    spec = {"folder": folder, "digest": digest, "size": len(data), "greeting": GREETING}
    return repr(_UNPACK).encode() + b"\n" + json.dumps(spec).encode() + b"\n" + data


def package_files() -> dict[str, str]:
    """The text of the supervisor's modules, by the names they have here and there."""
    harness = Path(__file__).resolve().parent.parent
    folders = [sorted((harness / folder).glob("*.py")) for folder in ("supervisor", "isolate")]
    groups = harness / "worker" / "processes" / "groups.py"
    modules = [*(path for paths in folders for path in paths), harness / "errors.py", groups]
    names = {path: f"fmha/harness/{path.relative_to(harness).as_posix()}" for path in modules}
    packages = ("", "harness/", "harness/worker/", "harness/worker/processes/")
    empty = dict.fromkeys((f"fmha/{folder}__init__.py" for folder in packages), "")
    return {name: path.read_text(encoding="utf-8") for path, name in names.items()} | empty


@functools.cache
def _package() -> tuple[bytes, str]:
    """The modules, compressed, and their sha256."""
    text = json.dumps(package_files(), sort_keys=True).encode()
    return zlib.compress(text, 6), hashlib.sha256(text).hexdigest()[:32]
