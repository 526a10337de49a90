"""`fmha budget`: what a kernel takes of a multiprocessor, and how many of its CTAs fit.

What a launch uses of shared and tensor memory is read off the launch. Registers are ptxas's figure for the kernel;
what a role needs of them is counted in the PTX that its warps executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from fmha.emulator.debug import usage
from fmha.emulator.debug.usage import Usage
from fmha.harness.errors import UserError
from fmha.harness.see.diagrams import areas_of, first_cta
from fmha.harness.see.launch_subject import LaunchSubject


@dataclass(frozen=True, slots=True)
class SmLimits:
    """Of a multiprocessor: CUDA C++ programming guide, "Technical specifications per compute capability". Bytes."""

    name: str
    registers: int
    shared: int
    shared_cta: int
    shared_reserved: int  # that each CTA costs besides
    warps: int
    ctas: int
    columns: int  # of tensor memory; 0 without it
    register_unit: int = 256  # a warp's are allocated in these
    thread_registers: int = 255


ARCHITECTURES: Final[Mapping[str, SmLimits]] = {
    "sm_90a": SmLimits("sm_90a (H100, H200)", 65536, 228 << 10, 227 << 10, 1 << 10, 64, 32, 0),
    "sm_100a": SmLimits("sm_100a (B200)", 65536, 228 << 10, 227 << 10, 1 << 10, 64, 32, 512),
}


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one CTA. `registers` a thread, 0 where nobody has said."""

    threads: int
    registers: int
    shared: int
    columns: int

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return -(-self.threads // 32)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many CTAs fit a multiprocessor, and what bounds them."""

    ctas: int
    bounds: tuple[tuple[str, int], ...]  # by resource: how many CTAs it would allow

    @property
    def limiting(self) -> tuple[str, ...]:
        """What there is too little of for one more CTA."""
        return tuple(name for name, ctas in self.bounds if ctas == self.ctas)


def occupancy(needs: Needs, limits: SmLimits) -> Occupancy:
    """How many CTAs a multiprocessor holds, and what each resource alone would allow."""
    bounds = [("warps", limits.warps // needs.warps), ("CTAs", limits.ctas)]
    if needs.registers:
        unit = limits.register_unit
        warp = -(-needs.registers * 32 // unit) * unit
        fits = needs.registers <= limits.thread_registers
        bounds.append(("registers", limits.registers // (warp * needs.warps) if fits else 0))
    fits = needs.shared <= limits.shared_cta
    bounds.append(("shared memory", limits.shared // (needs.shared + limits.shared_reserved) if fits else 0))
    if needs.columns:
        bounds.append(("tensor memory", limits.columns // needs.columns))
    return Occupancy(min(ctas for _, ctas in bounds), tuple(bounds))


def most(needs: Needs, limits: SmLimits, ctas: int) -> Iterator[tuple[str, int, int]]:
    """(resource, what a CTA takes, the most it could take for `ctas` of them), of those that it takes too much of."""
    registers = limits.registers // (ctas * needs.warps) // limits.register_unit * limits.register_unit // 32
    rows = [
        ("registers a thread", needs.registers, min(registers, limits.thread_registers)),
        (
            "bytes of shared memory",
            needs.shared,
            min(limits.shared // ctas - limits.shared_reserved, limits.shared_cta),
        ),
        ("warps", needs.warps, limits.warps // ctas),
        ("columns of tensor memory", needs.columns, limits.columns // ctas),
    ]
    return (row for row in rows if row[1] > row[2])


@dataclass(frozen=True, slots=True)
class Budget:
    """What a kernel takes of a multiprocessor."""

    name: str
    launch: str  # which of several it is of; empty of the only one
    target: str  # of the PTX
    needs: Needs
    shared: tuple[tuple[str, int, int], ...]  # (what, first byte, bytes)
    tensor: tuple[tuple[str, int, int], ...]  # (what, first column, columns)
    roles: tuple[tuple[str, int, int, tuple[str, ...]], ...]  # (warps, live registers at most, instructions, files)


def budget_of(subject: LaunchSubject) -> Budget:
    """The budget of the launch that is meant. UserError for several, none of them named."""
    used = Usage()
    which = subject.look(used)
    log = used.logs[0]
    memory = first_cta(log)
    tensor = sorted({(a.name, a.first, a.last - a.first + 1) for a in areas_of(memory)}, key=lambda x: x[1])
    shared = log.decoded.shared_static + used.shared_bytes
    build = subject.build() if subject.build else None
    of_entry = build is not None and build.variant.entry == log.entry  # ptxas's figure is kept of that one
    registers = build.resources.registers if build and build.resources and of_entry else 0
    return Budget(
        subject.name,
        which,
        used.target,
        Needs(used.threads, registers, shared, used.columns),
        tuple(usage.regions(memory, log)),
        tuple(tensor),
        tuple(usage.roles(log)),
    )


def fields_of(budget: Budget, what_if: Mapping[str, int]) -> dict[str, Any]:
    """The budget for --json."""
    needs = replace(budget.needs, **what_if)
    fitting = {name: limits for name, limits in ARCHITECTURES.items() if limits.columns or not needs.columns}
    return {
        "kernel": budget.name,
        "launch": budget.launch,
        "target": budget.target,
        "needs": asdict(budget.needs),
        "what_if": dict(what_if),
        "shared": [{"what": what, "first": first, "bytes": size} for what, first, size in budget.shared],
        "tensor": [{"what": what, "first": first, "columns": size} for what, first, size in budget.tensor],
        "roles": [
            {"warps": warps, "live": live, "instructions": count, "files": list(files)}
            for warps, live, count, files in budget.roles
        ],
        "occupancy": {
            name: {"ctas": found.ctas, "bounds": dict(found.bounds)}
            for name, found in ((name, occupancy(needs, limits)) for name, limits in fitting.items())
        },
    }


def lines_of(budget: Budget, what_if: Mapping[str, int]) -> Iterator[str]:
    """The budget in words; `what_if` replaces fields of its needs."""
    yield f"{budget.name}, {budget.target}"
    if budget.launch:
        yield budget.launch
    yield "shared memory of a CTA"
    for what, first, size in budget.shared:
        yield f"  0x{first:05x}  {size:7d}  {what}"
    used = sum(size for _, _, size in budget.shared)
    yield f"  {budget.needs.shared} bytes asked for, {used} of them touched by this launch"
    if budget.tensor:
        yield "tensor memory of a CTA, columns"
        for what, first, size in budget.tensor:
            yield f"  {first:3d}-{first + size - 1:3d}  {size:4d}  {what}"
        taken = len({c for _, first, size in budget.tensor for c in range(first, first + size)})
        yield f"  {budget.needs.columns} columns allocated, {taken} of them used"
    yield "registers by role (32-bit words of PTX registers that are live at once, at most)"
    for warps, live, count, files in budget.roles:
        yield f"  {warps:12} {live:4d}  {count} instructions, most in {', '.join(files)}"
    if budget.needs.registers:
        yield f"  ptxas gives every thread {budget.needs.registers}"
    for limits in ARCHITECTURES.values():
        yield from _fit(budget.needs, limits)
    if what_if:
        changed = replace(budget.needs, **what_if)
        yield "what if " + ", ".join(f"{name} were {value}" for name, value in what_if.items())
        for limits in ARCHITECTURES.values():
            yield from _fit(changed, limits)


def _fit(needs: Needs, limits: SmLimits) -> Iterator[str]:
    if needs.columns and not limits.columns:
        yield f"{limits.name}: has no tensor memory"
        return
    found = occupancy(needs, limits)
    allowed = ", ".join(f"{name} {ctas}" for name, ctas in found.bounds)
    yield f"{limits.name}: {found.ctas} CTAs a multiprocessor, bound by {' and '.join(found.limiting)} ({allowed})"
    for what, now, at_most in most(needs, limits, found.ctas + 1):
        yield f"  for {found.ctas + 1}: at most {at_most} {what}, now {now}"


def check_what_if(given: Sequence[str]) -> dict[str, int]:
    """`registers=128` and the like."""
    fields = ("threads", "registers", "shared", "columns")
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in fields or not value.isdigit() or (name == "threads" and int(value) < 1):
            raise UserError(f"--what-if: {text!r} is not one of {', '.join(f'{field}=N' for field in fields)}")
        found[name] = int(value)
    return found
