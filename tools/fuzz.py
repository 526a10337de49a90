"""Hostile PTX for the emulator's core: `make fuzz`, or `python -m tools.fuzz --seconds 600` on the installed core.

Kernels of the tests are changed at random, words and lines at a time, decoded, and launched on little memory. PTX that
is refused, and findings, are what should come. A process that dies, or that a sanitizer ends, is not: its PTX is kept
in the folder of --keep. `make fuzz` has a core with AddressSanitizer and UndefinedBehaviorSanitizer compiled for it:
tools/sanitized.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_BYTES = 60_000  # of a kernel: a larger one leaves few launches
MANY = 40  # mutants of a process: a fork of what is loaded, and not a start
INSTRUCTIONS = 20_000
LAUNCH_SECONDS = 20
ROOM = 1 << 16  # bytes of each buffer that a pointer leads to
BUFFERS = 4
_WORD = re.compile(r"[%\w.]+|-?\d+")
_NUMBERS = ("0", "1", "-1", "2", "7", "31", "32", "63", "255", "4096", "65535", "2147483647", "-2147483648",
            "4294967295", "18446744073709551615", "9223372036854775807", "0x7FFFFFFFFFFFFFF8")  # fmt: skip


def mutated(text: str, words: list[str], dice: random.Random) -> str:
    """One change or two: a word by another of the kernel's or by an extreme number, a line gone, doubled, moved."""
    lines = text.splitlines()
    body = [at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("//")]
    for _ in range(dice.randint(1, 2)):
        at = dice.choice(body)
        kind = dice.random()
        if kind < 0.7:
            found = list(_WORD.finditer(lines[at]))
            if found:
                word = dice.choice(found)
                new = dice.choice(_NUMBERS if re.fullmatch(r"-?\d+", word[0]) or dice.random() < 0.2 else words)
                lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
        elif kind < 0.8:
            lines[at] = ""
        elif kind < 0.9:
            lines[at] = f"{lines[at]}\n{lines[dice.choice(body)]}"
        else:
            other = dice.choice(body)
            lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def tried(text: str, seed: int) -> str:
    """What came of one kernel: refused, or a word for how its launches ended."""
    from fmha import emulator

    errors = (emulator.PtxError, emulator.LaunchError, emulator.UnmodelledError)
    try:
        module = emulator.load_ptx(text)
    except errors as error:
        return type(error).__name__
    said = "no entry"
    for name, entry in module.entries.items():
        device = emulator.Device(seed=seed, schedule="random", max_instructions=INSTRUCTIONS)
        pointers = [device.alloc(ROOM, f"b{n}").address for n in range(BUFFERS)]
        for address in pointers:
            device.write(address, np.random.default_rng(seed).integers(0, 255, ROOM, dtype=np.uint8))
        args: list[bytes | int | float] = []
        for number, param in enumerate(entry.params):
            words = pointers[number % BUFFERS].to_bytes(8, "little") if param.nbytes >= 8 else b"\x10\0\0\0"
            args.append((words * (param.nbytes // len(words) + 1))[: param.nbytes])
        try:
            report = device.launch(module, name, (2, 1, 1), entry.max_threads or 64, args, shared_bytes=1 << 15)
            said = "findings" if report.findings else "clean"
        except errors as error:
            said = type(error).__name__
    return said


def begun(kernels: list[Path], seed: int, keep: Path) -> int:
    """A fork that tries MANY mutants; its pid. The last mutant is in `keep` while it is tried."""
    child = os.fork()
    if child:
        return child
    try:
        _try_many(kernels, seed, keep)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _try_many(kernels: list[Path], seed: int, keep: Path) -> None:
    dice = random.Random(seed)
    current = keep / f"{seed}.ptx"
    counts: dict[str, int] = {}
    for number in range(MANY):
        text = dice.choice(kernels).read_text()
        words = sorted(set(_WORD.findall(text)))
        text = mutated(text, words, dice)
        current.write_text(text)
        signal.alarm(LAUNCH_SECONDS)
        try:
            said = tried(text, dice.randrange(1 << 30))
        except Exception as error:  # of the decoder: a fault, and no way out
            said = f"internal-{type(error).__name__}"
            current.rename(keep / f"{said}-{seed}-{number}.ptx")
        counts[said] = counts.get(said, 0) + 1
    signal.alarm(0)
    current.unlink(missing_ok=True)
    with (keep / "counts").open("a") as file:
        file.write("".join(f"{name} {count}\n" for name, count in counts.items()))


def main() -> int:
    """0 when every process ended by itself and the decoder raised nothing but what it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=Path, help="of another build than the installed one")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=REPOSITORY / "build" / "fuzz-found")
    options = parser.parse_args()
    if options.core:
        spec = importlib.util.spec_from_file_location("fmha.emulator._core", options.core)
        assert spec is not None
        assert spec.loader is not None
        core = sys.modules["fmha.emulator._core"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(core)
    import fmha.emulator  # noqa: F401 - loaded once, before the forks

    earlier = options.keep / "earlier"  # what other runs have found, which is no word on this one
    earlier.mkdir(parents=True, exist_ok=True)
    for path in options.keep.glob("internal-*.ptx"):
        path.replace(earlier / path.name)
    found = sorted((REPOSITORY / "tests").rglob("*.ptx"))
    kernels = [path for path in found if path.stat().st_size < MOST_BYTES]
    deadline, seed, dead = time.monotonic() + options.seconds, options.seed, 0
    live: dict[int, int] = {}
    while live or time.monotonic() < deadline:
        while len(live) < options.processes and time.monotonic() < deadline:
            live[begun(kernels, seed, options.keep)] = seed
            seed += 1
        if not live:
            break
        child, status = os.wait()
        of = live.pop(child)
        if status:
            dead += 1
            how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            print(f"seed {of}: {how}: {options.keep / f'{of}.ptx'}", flush=True)
    print(f"{seed - options.seed} processes of {MANY} kernels, {dead} of them did not end by themselves")
    raised = sorted(options.keep.glob("internal-*.ptx"))
    for path in raised:
        print(f"the decoder raised {path.name.split('-')[1]}: {path}")
    return 1 if dead or raised else 0


if __name__ == "__main__":
    sys.exit(main())
