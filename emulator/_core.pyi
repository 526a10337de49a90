from typing import Any

OPS: dict[str, int]
SPECIALS: dict[str, int]
TYPES: dict[str, int]
MODS: dict[str, int]
MATRIX_TYPES: dict[str, int]
PARAM_WINDOW: int
SHARED_START: int
CALL_PARAMS: int

class Program:
    def __init__(
        self,
        insts: bytes,
        operands: bytes,
        consts: bytes,
        units: int,
        shared_static: int,
        local_bytes: int,
        param_bytes: int,
    ) -> None: ...

class Recorder:
    @property
    def clusters(self) -> list[dict[str, Any]]: ...
    def replay(
        self,
        program: Program,
        ordinals: list[int],
        constants: dict[str, float],
        sms: float,
        from_hbm: float,
        traced: bool,
    ) -> dict[str, Any]: ...

class Machine:
    recorded: list[int]  # clusters by ordinal
    only_recorded: bool
    recorder: Recorder | None
    seed: int
    checks: bool
    watched: bool
    max_instructions: int
    threads: int
    schedule: int
    profile: int
    mma_sums: int
    def __init__(self) -> None: ...
    def allocate(self, size: int, name: str) -> int: ...
    def release(self, address: int) -> None: ...
    def write(self, address: int, data: bytes) -> None: ...
    def read(self, address: int, size: int) -> bytes: ...
    def run(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_shared: int,
        params: bytes,
        workspace: int,
    ) -> list[dict[str, object]]: ...
    def resident_clusters(
        self, program: Program, block: tuple[int, int, int], cluster: tuple[int, int, int], dynamic_shared: int
    ) -> int: ...
    @property
    def executed(self) -> bytes: ...  # by pc, 1 where an instruction was executed; empty unless watched
    @property
    def stats(self) -> dict[str, float]: ...
