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
