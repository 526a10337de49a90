"""The report as its readers meet it: in a real browser, on a desk and on a phone, in light and in dark."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fmha.harness import archive
from fmha.harness.archive import Index, RunRecord
from fmha.harness.archive.record import Acceptance, ConfigurationRecord, Parameters, Timing
from fmha.harness.evidence import baseline
from fmha.harness.evidence.comparison import compare
from fmha.harness.report import Evidence, charts, heat, render
from fmha.harness.status import Status
from fmha.harness.worker.protocol import FindingRecord
from tests.evidence.records import IDS, archived, measured, record
from tests.report.browser import CONTRAST, Browser

HOSTILE = "<script>document.title = 'owned'</script>\"'&"
PLACE = "kernel/sm100/fmha_fwd.cu:75"
WINDOWS = {"desk": (1280, 900), "phone": (360, 740)}
SMALLEST_TEXT = 8  # CSS pixels, as drawn: charts shrink with the window
CHART_TEXT = """
const scale = svg => svg.clientWidth / svg.viewBox.baseVal.width;
return [...document.querySelectorAll('svg text')].map(
  text => parseFloat(getComputedStyle(text).fontSize) * scale(text.ownerSVGElement));
"""


def limit(item: ConfigurationRecord, metric: str) -> float:
    return 4e-6 if metric == "cosine" else 5e-3


def full() -> RunRecord:
    """A run with something for every section, and with text that must not be taken for markup."""
    race = FindingRecord(
        "tmem-race", "error", f"two writers {HOSTILE}", {"source": PLACE, "ptx": "tcgen05.ld", "ptx_line": 9}
    )
    long = FindingRecord("mbarrier-missing-fence", "warning", "x" * 400, {"source": "kernel/none.cu:3"})
    made = record(
        outcomes={
            IDS[0]: {"status": Status.HAZARD, "reasons": (HOSTILE,), "findings": (race, long)},
            IDS[1]: measured(cosine=1 - 3.1e-6, max_error=math.inf),
        },
        resources={"registers": 255, "spill_stores": 8},
    )
    timing = Timing(
        seconds=[1.03e-4] * 20,
        clock_mhz=[1755.0] * 20,
        bytes_moved=2e8,
        operations=5e10,
        bytes_per_second=3.9e12,
        operations_per_second=7.4e14,
        beside="f" * 40,
        beside_seconds=[1e-4] * 20,
        beside_clock_mhz=[1755.0] * 20,
    )
    items = [made.configurations[0], made.configurations[1].model_copy(update={"timing": timing})]
    items += grid(made.configurations[1])
    lines = {
        str(number): f"    line {number}; {HOSTILE if number == 75 else ''}{'y' * 200}" for number in range(72, 79)
    }
    sources = {PLACE.split(":")[0]: lines}
    return made.model_copy(update={"configurations": items, "sources": sources})


def grid(like: ConfigurationRecord) -> list[ConfigurationRecord]:
    """head_dim x T x s_k without and with a mask, every cell another error; the largest in hd512_t128_sk512."""
    found = []
    assert like.metrics
    for place, (head_dim, t, s_k, mask) in enumerate(
        itertools.product((64, 128, 512), (1, 4, 128), (256, 384, 512), ("none", "causal"))
    ):
        metrics = like.metrics.model_copy(update={"cosine": 1 - 4e-8 * (place + 1), "max_error": 1e-3})
        name = f"hd{head_dim}_t{t}_sk{s_k}" + ("_causal" if mask != "none" else "")
        axes = Parameters(head_dim=head_dim, t=t, s_k=s_k, batch=1, mask=mask, window=0)
        found.append(like.model_copy(update={"id": name, "parameters": axes, "metrics": metrics, "timing": None}))
    return found


def written(folder: Path, run: RunRecord) -> Path:
    """The page of a run in an archive with a baseline and a history."""
    archived(folder, 5)
    base = record(sha="b" * 40)
    taken = Acceptance(
        why=HOSTILE, accepted=datetime.now(UTC), by="t", replaces=None, deterministic=True, seeds=[], noise={}
    )
    base = base.model_copy(update={"acceptance": taken})
    with Index(folder) as index:
        page = render(Evidence(run, "run.json", index, base, compare(base, run), limit))
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page"), full())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS)
def test_it_is_readable(page: Path, browser: Browser, window: str, dark: bool) -> None:
    driver = browser.open(page, *WINDOWS[window], dark=dark)
    driver.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
    assert driver.get_log("browser") == []
    assert driver.title.startswith("PASS 2 of 2") or "FAIL" in driver.title
    assert min(driver.execute_script(CHART_TEXT)) >= SMALLEST_TEXT
    contrasts = driver.execute_script(CONTRAST)
    assert len(contrasts) > 200
    assert [item for item in contrasts if item[0] < 4.5] == []
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert driver.execute_script(wider) == 0
    background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_it_works_from_the_keyboard(page: Path, browser: Browser) -> None:
    driver = browser.open(page)
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert driver.switch_to.active_element.text == "Skip to the evidence"
    seen: list[str] = []
    stops = driver.execute_script(
        "return [...document.querySelectorAll('a, summary, [tabindex]')].filter(e => e.checkVisibility()).length"
    )
    for _ in range(stops - 1):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(driver.execute_script("return document.activeElement.tagName"))
    assert {"A", "SUMMARY", "DIV", "PRE"} <= set(seen)
    shown = "return getComputedStyle(document.activeElement).outlineStyle"
    assert driver.execute_script(shown) == "solid"
    closed = next(item for item in driver.find_elements(By.CSS_SELECTOR, "details:not([open]) > summary"))
    details = closed.find_element(By.XPATH, "..")
    closed.send_keys(Keys.ENTER)
    assert details.get_attribute("open") is not None


def test_nothing_is_loaded_and_nothing_runs(page: Path, browser: Browser) -> None:
    text = page.read_text()
    assert not re.search(r"<script|\bon\w+=|https?://|url\(|@import", re.sub(r"&lt;script&gt;", "", text))
    assert "default-src 'none'" in text
    driver = browser.open(page)
    assert driver.title != "owned"
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded == []
    assert HOSTILE in driver.find_element(By.ID, "baseline").find_element(By.XPATH, "..").text


def test_structure_is_sound(page: Path, browser: Browser) -> None:
    driver = browser.open(page)
    assert driver.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    levels = driver.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    targets = driver.execute_script(
        "return [...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.hash)).length"
    )
    assert targets == 0
    ids = driver.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    unnamed = "return [...document.querySelectorAll('svg, [role=region]')].filter(e => !e.ariaLabel).length"
    assert driver.execute_script(unnamed) == 0


def test_the_worst_cell_is_named_and_framed() -> None:
    items = grid(full().configurations[1])
    plain, causal = heat.groups(items, limit)
    assert (plain.title, causal.title) == ("plain", "causal")
    cosine = plain.maps[0]
    assert (cosine.worst_id, cosine.worst_text, cosine.limit_text) == ("hd512_t128_sk512", "2.1e-6", "4.0e-6")
    framed = [cell.id for grid in cosine.grids for _, row in grid.rows for cell in row if cell and cell.worst]
    assert framed == ["hd512_t128_sk512"]
    first = cosine.grids[0]
    assert (first.title, first.columns) == ("head_dim 64: T by s_k", (256, 384, 512))
    assert [t for t, _ in first.rows] == [1, 4, 128]


@pytest.mark.parametrize(("error", "step"), [(0.0, 0), (5e-7, 0), (2e-6, 3), (3.9e-6, 6), (1e-3, 6), (math.nan, 6)])
def test_colours_are_shares_of_the_limit(error: float, step: int) -> None:
    item = full().configurations[1]
    assert item.metrics
    changed = item.model_copy(update={"metrics": item.metrics.model_copy(update={"cosine": 1 - error})})
    (group,) = heat.groups([changed], limit)
    (cell,) = group.maps[0].grids[0].rows[0][1]
    assert cell
    assert cell.step == step


def test_axes_that_are_not_known_make_groups_of_their_own() -> None:
    items = grid(full().configurations[1])[:4]
    other = [
        item.model_copy(
            update={"id": f"{item.id}_sink", "parameters": Parameters(**item.parameters.model_dump(), sink="mixed")}
        )
        for item in items
    ]
    assert [group.title for group in heat.groups([*items, *other], limit)] == [
        "plain",
        "causal",
        "sink mixed",
        "causal, sink mixed",
    ]


@pytest.mark.parametrize(
    "values", [[], [0.0], [1e-6], [math.inf, 1e-3], [math.nan], [1e-12, 1e12]], ids=lambda values: str(values)
)
def test_scales_keep_every_value_on_the_chart(values: Sequence[float]) -> None:
    scale = charts.LogScale(values, 10, 110)
    assert all(10 <= scale.at(value) <= 110 for value in values if not math.isnan(value))
    assert 2 <= len(scale.ticks()) <= 8


def test_the_roof_bends_at_the_ridge() -> None:
    chart = charts.roofline("roof", [("a", 100.0, 1e14), ("b", 1000.0, 5e14)], bandwidth=4e12, rate=8e14)
    corners = [tuple(map(float, point.split())) for point in re.split("[ML]", chart.roof)[1:]]
    (_, y0), (_, y1), (_, y2) = corners
    assert y0 > y1 == y2
    assert all(dot.y >= y1 for dot in chart.dots)


@pytest.mark.parametrize("change", [lambda run: run, lambda run: bare(run)], ids=["whole", "nothing measured"])
def test_any_run_makes_a_page(tmp_path: Path, change: Callable[[RunRecord], RunRecord]) -> None:
    text = written(tmp_path, change(full())).read_text()
    assert text.count("<h1>") == 1
    assert text.rstrip().endswith("</html>")


def bare(run: RunRecord) -> RunRecord:
    items = [item.model_copy(update={"metrics": None, "status": Status.BUILD_ERROR}) for item in run.configurations]
    variants = [item.model_copy(update={"resources": None, "error": "a.cu(3): error\nmore"}) for item in run.variants]
    return run.model_copy(update={"configurations": items, "variants": variants})


def test_a_page_of_many_configurations_stays_small(page: Path) -> None:
    """It is opened on phones and attached to CI jobs."""
    assert page.stat().st_size < 400_000


def test_a_damaged_baseline_is_left_out_and_named(tmp_path: Path, fmha: Callable[..., Any]) -> None:
    path = archive.write(full(), tmp_path)
    damaged = baseline.path_of(baseline.name_of(full()), tmp_path)
    damaged.parent.mkdir()
    damaged.write_text(path.read_text()[:500])
    ran = fmha("report", "--results", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert f"the baseline is left out: {damaged}: is not JSON" in ran.stderr
    page = path.with_suffix(".html").read_text()
    assert "No comparison with the baseline, which cannot be read" in page
    assert "Against the baseline" not in page


def test_the_command_writes_it_beside_the_run(tmp_path: Path, fmha: Callable[..., Any]) -> None:
    path = archive.write(full(), tmp_path)
    ran = fmha("report", "--results", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"wrote {path.with_suffix('.html')}\n"
    assert path.with_suffix(".html").read_text().startswith("<!DOCTYPE html>")
