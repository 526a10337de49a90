"""The suites that tools/cover.py makes: that matrix.yaml has what it makes, and that they reach what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.config import Matrix, load
from fmha.harness.judge.configuration import Configuration, fault
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import variant_for
from tools import cover

pytestmark = pytest.mark.xdist_group("cover")

NAMES = tuple(cover.SUITES)
PLAIN = ("none", "full", "full", 1)


@pytest.fixture(scope="module")
def matrix(repository: Path) -> Matrix:
    return load(repository)


@pytest.fixture(scope="module")
def made() -> dict[str, list[cover.Row]]:
    return {name: cover.rows(make()) for name, make in cover.SUITES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_matrix_yaml_has_what_the_program_makes(repository: Path, made: dict[str, list[cover.Row]], name: str) -> None:
    text = (repository / "matrix.yaml").read_text(encoding="utf-8")
    assert cover.written(text, name, cover.suite(cover.SUITES[name](), made[name])) == text, "run python -m tools.cover"


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_legal_and_has_a_kernel(matrix: Matrix, name: str) -> None:
    arch = "sm_100a" if name == "cover" else ARCH
    for item in matrix.suites[name]:
        assert fault(item) is None, item.id
        assert not isinstance(variant_for(item, arch), str), item.id


@pytest.mark.parametrize("name", NAMES)
def test_every_legal_pair_and_triple_is_there(made: dict[str, list[cover.Row]], name: str) -> None:
    """What is left out no row may have: a search over the fields that rules bound finds none."""
    space, rows = cover.SUITES[name](), made[name]
    covered = {item for row in rows for item in cover.tuples_of(row, space.fields)}
    left = [item for item in cover.wanted(space.fields) if item not in covered]
    bounded = set().union(*(needs for needs, _ in cover.RULES))
    for item in left:
        fields = {key: values for key, values in space.fields.items() if key in bounded}
        assert not possible(space, fields, dict(item)), item
    assert len(left) < len(cover.wanted(space.fields)) / 10


def possible(space: cover.CoverSpace, fields: cover.Values, row: dict[str, object]) -> bool:
    if not all(check(space, row) for needs, check in cover.RULES if needs <= row.keys()):
        return False
    name = next((name for name in fields if name not in row), None)
    return name is None or any(possible(space, fields, {**row, name: value}) for value in fields[name])


@pytest.mark.parametrize("name", NAMES)
def test_what_empties_rows_stands_alone(made: dict[str, list[cover.Row]], name: str) -> None:
    void = {(field, value) for field, values in cover.VOID.items() for value in values}
    found = [void & set(row.items()) for row in made[name]]
    assert max(map(len, found)) == 1
    assert set().union(*found) == void


@pytest.mark.parametrize("kv", ["separate", "shared"])
@pytest.mark.parametrize("kernel", list(cover.SM100))
def test_every_ring_and_every_parity_comes_round_two_and_a_half_times(matrix: Matrix, kernel: str, kv: str) -> None:
    """A ring's slots are filled once a tile of K and once one of V; the barriers of a pair repeat after four tiles."""
    wanted = cover.SM100[kernel].fields
    mine = [item for item in matrix.suites["cover"] if wanted.items() <= fields_of(item).items() and item.kv == kv]
    variant = variant_for(mine[0])
    assert not isinstance(variant, str)
    shape = variant.shape
    plain = [item for item in mine if (item.mask, item.kv_lens, item.sparse_lens, item.splits) == PLAIN]
    for tiles in (
        max(item.s_k // shape.keys for item in plain if item.topk == 0),
        max(item.topk // shape.keys for item in plain),
    ):
        uses = tiles if kv == "shared" else 2 * tiles
        assert uses >= 2.5 * shape.stages
        assert tiles >= 2.5 * 4


def fields_of(item: Configuration) -> dict[str, object]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}
