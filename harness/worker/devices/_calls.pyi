from collections.abc import Sequence

Field = tuple[int, int, int]

class Launches:
    def __init__(
        self,
        entries: Sequence[int],
        context: int,
        arguments: int,
        maps: Sequence[Field],
        pointers: Sequence[Field],
        /,
    ) -> None: ...
    def __call__(self, configured: bytes, addresses: bytes, /, *more: int) -> int: ...

def read(tensors: tuple[object, ...], /) -> tuple[bytes, bytes] | None: ...

Row = Sequence[float]

class Planned:
    outputs: tuple[
        tuple[tuple[int, ...], tuple[int, ...]],
        tuple[tuple[int, ...], tuple[int, ...]] | None,
        tuple[tuple[int, ...], tuple[int, ...]] | None,
        int,
        bool,
    ]
    variant: int
    splits: int

    def __call__(self, stream: int, addresses: bytes, o: int, statistics: int, scratch: int, drawn: int, /) -> int: ...

class Planner:
    def __init__(
        self,
        entries: Sequence[int],
        context: int,
        most_scratch: int,
        variants: Sequence[Row],
        shapes: Sequence[Row],
        paces: Sequence[Row],
        rates: Sequence[Row],
        /,
    ) -> None: ...
    def plan(
        self,
        form: bytes,
        scale: float,
        left: int,
        right: int,
        longest_q: int,
        longest_k: int,
        normalise: bool,
        output_bf16: bool,
        stored: int,
        splits: int,
        /,
    ) -> Planned | int | None: ...
    def load(self, place: int, forward: int, suffix: int, combine: int, /) -> None: ...
