"""What compute-sanitizer's four tools say, on a machine with a GPU:

    python -m tools.sanitizer.host OUT.json [--programs FOLDER] [--seconds N] [--add RECORD --missing]

It runs the kernels of tests/emulator/catalogue and the programs of tests/programs/reports*.cu. FOLDER has more
programs, each a .cu file and, where a file of the same name ends in .twin, one that is right if it is built with
-DBUG=0. What would hang is left out: no tool has a word for it. OUT.json has for each program and tool the first lines
of what is said, and where a launch failed its error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from tools.catalogue import PAGE, ROOT, CatalogueEntry, entries

TOOLS = ("racecheck", "memcheck", "synccheck", "initcheck")
_QUIET = 12.0  # seconds without a line: the kernel hangs. More where more run at once than there are cores
HANGING = {"barrier_each", "scan", "logical_warps", "ballot"}  # of tests/programs/reports*.cu
_HANGS = {"deadlock", "livelock", "instruction-limit"}
Build = Callable[[], Sequence[str | Path]]
Said = dict[str, dict[str, list[str]]]  # by program and tool


def hanging() -> set[str]:
    """The entries of the catalogue that would not end on a GPU, by what the emulator says of them."""
    found, room = set(), ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            room = line[3:].lower()
        if (row := re.match(r"\| `(\w+)` \|", line)) and _HANGS & set(re.findall(r"`([\w-]+)`", line)):
            found.add(f"{room}/{row[1]}")
    return found


def sayings(line: str) -> str | None:
    """The line of a report that says what is wrong, without what is another at each run."""
    if not (found := re.match(r"={9} (?! )(.*)", line)):
        return None
    text = found[1]
    if re.match(r"COMPUTE-SANITIZER|\w+ SUMMARY|LEAK|Program hit|Target application|Error: Target|$", text):
        return None
    return re.sub(r"0x[0-9a-fA-F]+", "0x..", text)[:200]


def lines_of(command: Sequence[str | Path], quiet: float) -> Iterator[str]:
    """What a program prints; it is killed once it has said nothing for so long."""
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    timer: list[threading.Timer] = []

    def arm() -> None:
        for t in timer:
            t.cancel()
        timer[:] = [threading.Timer(quiet, os.killpg, (running.pid, signal.SIGKILL))]
        timer[0].start()

    assert running.stdout is not None
    arm()
    for line in running.stdout:
        arm()
        yield line.rstrip()
    timer[0].cancel()
    running.wait()


def catalogue(tool: str, kernel: str, chosen: list[CatalogueEntry], folder: Path, launcher: Path) -> Said:
    """What a tool says of one kernel of each entry; the launcher begins anew behind one that takes the context down."""
    listing = folder / f"{tool}-{kernel}-{chosen[0].name.replace('/', '-')}.txt"
    rows = [
        f"{e.name}:{kernel} {folder / e.name.replace('/', '-')}.ptx {kernel} {e.grid} {e.block} {e.cluster} {e.shared} "
        f"{e.launches} {e.maps}"
        for e in chosen
    ]
    listing.write_text("\n".join(rows) + "\n")
    said: Said = {}
    done = 0
    while done < len(rows):
        name, open_ = rows[done].split()[0], True
        for line in lines_of(["compute-sanitizer", *options_of(tool), launcher, listing, str(done)], _QUIET):
            word, _, rest = line.partition(" ")
            if word == "begin":
                name, open_ = rest, True
                said[name] = {tool: []}
            elif word in ("end", "lost", "refused"):
                if word != "end":
                    said[name][tool].append(f"{word}: {rest.partition(' ')[2]}")
                if word != "refused":
                    open_ = False
                    done += 1
            elif (text := sayings(line)) and name in said and text not in said[name][tool]:
                said[name][tool].append(text)
        if open_:
            said.setdefault(name, {tool: []})[tool].append("hang")
            done += 1
    return said


def program(name: str, command: Sequence[str | Path], tool: str, quiet: float = _QUIET) -> Said:
    """What a tool says of a program; "hang" where it is silent for `quiet` seconds before its end."""
    found: list[str] = []
    ended = False
    for line in lines_of(["compute-sanitizer", *options_of(tool), *command], quiet):
        ended |= "SUMMARY" in line
        if (text := sayings(line)) and text not in found:
            found.append(text)
    return {name: {tool: found if ended else [*found, "hang"]}}


@cache
def provenance() -> dict[str, str]:
    """The GPU, its driver and the sanitizer's version."""
    version = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True).stdout
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return {"gpu": name, "driver": driver, "compute-sanitizer": version.strip().splitlines()[-1]}


@cache
def options_of(tool: str) -> tuple[str, ...]:
    """How a tool is asked. What a launch does wrong ends that launch alone, where a tool knows how."""
    given = ["--tool", tool, "--print-limit", "3", "--launch-timeout", "60"]
    if tool == "memcheck":
        given += ["--destroy-on-device-error", "kernel"]
    listed = subprocess.run(["compute-sanitizer", "--help"], capture_output=True, text=True, check=False).stdout
    if tool == "initcheck" and "--initcheck-address-space" in listed:
        given += ["--initcheck-address-space", "all"]
    return tuple(given)


def built(source: Path, folder: Path, *flags: str) -> Path:
    """A source compiled for Hopper. RuntimeError where nvcc refuses it."""
    made = folder / ("-".join([source.parent.name, source.stem, *flags]))
    command = ["nvcc", "-std=c++17", "-lineinfo", "-arch=sm_90a", f"-I{source.parent}", f"-I{source.parent.parent}"]
    done = subprocess.run([*command, *flags, "-o", made, source], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{source}: {done.stderr}")
    return made


def _words(*words: str | Path) -> list[str | Path]:
    return list(words)


def _compiled(source: Path, folder: Path, *flags: str) -> list[str | Path]:
    return [built(source, folder, *flags)]


def programs(folder: Path | None, made: Path, *flags: str) -> Iterator[tuple[str, Build]]:
    """Names, and what builds a command."""
    for path in sorted(folder.rglob("*.cu"), reverse=True) if folder else ():
        name = str(path.relative_to(folder or path).with_suffix(""))
        yield f"{name}:mistake", partial(_compiled, path, made, *flags)
        if path.with_suffix(".twin").exists():
            yield f"{name}:right", partial(_compiled, path, made, "-DBUG=0", *flags)
    for source in sorted((ROOT / "tests/programs").glob("reports*.cu")):
        reports = built(source, made, *flags)
        for name in re.findall(r'\{"(\w+)", \w+, \d+, \w+\}', source.read_text()):
            if name not in HANGING:
                yield f"{source.stem}/{name}:mistake", partial(_words, reports, name)
            yield f"{source.stem}/{name}:right", partial(_words, reports, name, "right")


def main() -> int:
    """Runs the sanitizer over the catalogue and programs, and writes what it said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--seconds", type=float, default=1000.0, help="what has not begun by then is left out")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--programs-alone", action="store_true", help="leave the catalogue out")
    parser.add_argument("--add", type=Path, help="what an earlier run has kept, which stays where this one has nothing")
    parser.add_argument("--missing", action="store_true", help="run only the tools that the record of --add lacks")
    parser.add_argument("--quiet", type=float, default=_QUIET, help="seconds without a line: the program hangs")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    said: Said = json.loads(options.add.read_text())["said"] if options.add else {}
    lock = threading.Lock()

    def keep(found: Said) -> None:
        with lock:
            for name, tools in found.items():
                said.setdefault(name, {}).update(tools)
            options.out.write_text(json.dumps({"provenance": provenance(), "said": said}, indent=1, sort_keys=True))

    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.jobs) as pool:
        folder = Path(temporary)
        launcher = built(ROOT / "tools/sanitizer/launcher.cu", folder)
        hangs = hanging()
        chosen = [e for e in entries() if e.room != "tensor"]  # tcgen05 is not for sm_90
        for entry in chosen:
            text = entry.ptx.read_text().replace(".target sm_100a", ".target sm_90a")
            (folder / f"{entry.name.replace('/', '-')}.ptx").write_text(text)

        def look(tool: str, kernel: str, some: list[CatalogueEntry]) -> None:
            keep(catalogue(tool, kernel, some, folder, launcher))

        waiting: list[Future[None]] = []
        mistakes = [e for e in chosen if e.name not in hangs]
        for tool in () if options.programs_alone else TOOLS:
            jobs = [("right", chosen), *(("mistake", mistakes[part::3]) for part in range(3))]
            for kernel, some in jobs:
                waiting.append(pool.submit(look, tool, kernel, some))

        def one(name: str, command: Sequence[str | Path], tool: str) -> None:
            if time.monotonic() < end:
                keep(program(name, command, tool, options.quiet))

        def begin(name: str, build: Build) -> list[Future[None]]:
            lacking = [tool for tool in TOOLS if not (options.missing and tool in said.get(name, {}))]
            try:
                command = build() if lacking else []
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return []
            return [pool.submit(one, name, command, tool) for tool in lacking]

        begun = [pool.submit(begin, name, build) for name, build in programs(options.programs, folder)]
        waiting += [run for program_ in begun for run in program_.result()]
        for job in waiting:
            job.result()
    print(f"{len(said)} programs, {options.seconds + time.monotonic() - end:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
