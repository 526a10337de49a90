"""The report as its readers meet it: in a real browser, on a desk and on a phone, in light and in dark."""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fmha.emulator.rules import RULES
from fmha.harness import archive
from fmha.harness.archive import Index, RunRecord
from fmha.harness.archive.record import Acceptance, ConfigurationRecord, Parameters, Timing
from fmha.harness.cli.report import history_of
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.evidence import baseline
from fmha.harness.judge.comparison.comparison import compare
from fmha.harness.judge.status import Status
from fmha.harness.report import Evidence, charts, delta, details, heat, render
from tests.evidence.planted import ILLEGAL, PLANTED, SOURCE, changed, counted, grown, guard_broken, plain_run
from tests.evidence.records import IDS, archived, measured, record
from tests.harness.support import GOOD
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
        metrics = replace(like.metrics, cosine=1 - 4e-8 * (place + 1), max_error=1e-3)
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
        history = history_of(index, run.host.name)
        page = render(Evidence(run, "run.json", history, base, compare(base, run), limit))
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
    changed = item.model_copy(update={"metrics": replace(item.metrics, cosine=1 - error)})
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


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression that no gate sees, of one head_dim."""
    folder, run = tmp_path_factory.mktemp("planted"), plain_run()
    new = PLANTED[0].make(run)
    text = render(Evidence(new, "run.json", lambda name: [], run, compare(run, new), limit))
    path = folder / "planted.html"
    path.write_text(text)
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS)
def test_what_changed_is_seen_without_scrolling(planted: Path, browser: Browser, window: str, dark: bool) -> None:
    driver = browser.open(planted, *WINDOWS[window], dark=dark)
    heading = driver.find_element(By.TAG_NAME, "h1")
    assert heading.text.startswith(
        "REGRESSED LSE error at head_dim 256 grew 50 to 310 times in 36 of 36 configurations"
    )
    assert heading.rect["y"] + heading.rect["height"] <= WINDOWS[window][1]
    drawn = driver.execute_script("return [...document.querySelectorAll('.delta caption')].map(e => e.textContent)")
    assert drawn[0] == "head_dim 256"  # those that are as before have no map
    assert "head_dim 64, 128, 512: all as before" in driver.find_element(By.TAG_NAME, "body").text
    assert [item for item in driver.execute_script(CONTRAST) if item[0] < 4.5] == []
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert driver.execute_script(wider) == 0


def test_a_cell_leads_to_its_configuration(planted: Path, browser: Browser) -> None:
    """From the keyboard, as a reader of the screen does; there is all to be read, with what repeats it."""
    driver = browser.open(planted)
    cell = driver.find_element(By.CSS_SELECTOR, "table.delta a")
    assert re.fullmatch(r"head_dim 256, T 1, s_k 128: ×\d+, 3 of 3 worse", cell.accessible_name)
    cell.send_keys(Keys.ENTER)
    shown = driver.find_element(By.CSS_SELECTOR, ".configuration:target")
    assert shown.is_displayed()
    assert f"fmha run-matrix --case {shown.get_attribute('id')} --seed 0" in shown.text
    (row,) = [row for row in shown.find_elements(By.CSS_SELECTOR, "tbody tr") if row.text.startswith("LSE error")]
    before, after, change, most = row.text.removeprefix("LSE error ").split(" ")[:4]
    assert float(after) / float(before) == pytest.approx(float(change.removeprefix("×")), rel=0.02)
    assert float(most) == 5e-3


def test_a_hazard_is_shown_with_both_accesses_and_what_to_do() -> None:
    run = plain_run()
    new = next(plant for plant in PLANTED if plant.name == "hazard").make(run)
    text = render(Evidence(new, "run.json", lambda name: [], run, compare(run, new), limit))
    part = text[text.index('id="worse"') :]
    assert f"this access: {SOURCE}:75, tcgen05.ld, PTX line 1207" in part
    assert f"the other: {SOURCE}:61" in part
    assert f"what to do: {html.escape(RULES['tmem-race'].remedy, quote=True)[:40]}" in part


def test_two_runs_of_any_kind_make_the_same_page(tmp_path: Path, fmha: Callable[..., Any]) -> None:
    first = archive.write(record(sha="1" * 40), tmp_path)
    grown = {IDS[0]: measured(lse_error=GOOD.lse_error * 99, output_hash="1" * 64)}
    other = record(sha="2" * 40, minutes=9, host="h200", outcomes=grown)
    second = archive.write(other, tmp_path)
    page = tmp_path / "page.html"
    ran = fmha("report", first.name, second.name, "--results", str(tmp_path), "--output", str(page))
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert f"</span> LSE error grew 99 times in {IDS[0]}; nothing else got worse</h1>" in text
    assert f"Before: commit {'1' * 12}, on emulator. 2 configurations compared." in text
    assert "Against the baseline" not in text


def test_two_schedules_are_named_and_told_apart(tmp_path: Path, fmha: Callable[..., Any]) -> None:
    """Each by its own name, of whatever was run last under it."""
    for minutes, schedule in enumerate(("realistic", "random:7")):
        run = record(sha="1" * 40, minutes=minutes)
        selection = run.selection.model_copy(update={"schedule": schedule})
        archive.write(run.model_copy(update={"selection": selection}), tmp_path)
    page = tmp_path / "page.html"
    for earlier, later in (("realistic", "random:7"), ("random:7", "realistic")):
        ran = fmha("report", f"@:{earlier}", f"@emulator:{later}", "--results", str(tmp_path), "--output", str(page))
        assert ran.returncode == 0, ran.stderr
        assert f"Before: commit {'1' * 12}, schedule {earlier}. 2 configurations compared." in page.read_text()


def test_every_figure_is_drawn_as_what_it_is() -> None:
    run = plain_run()
    new = changed(run, lambda item: item.parameters.head_dim == 64, grown("max_error", 0.1, 0.1))
    new = changed(new, lambda item: item.id == "hd128_t1_sk128", counted("barrier_waits", 1.3))
    found = delta.changes(compare(run, new), run, new)
    assert [(item.name, item.worse) for item in found.worse] == [("barrier waits", 1), ("bits", 36)]
    (best,) = found.others
    assert (best.name, best.better, best.worst.look) == ("largest relative error", 36, delta.Look.BETTER)
    assert "relative L2" in found.same
    counter = found.by_id["hd128_t1_sk128"]["barrier_waits"]
    assert (counter.look, counter.text, counter.before, counter.after) == (delta.Look.WORSE1, "+30%", "100", "130")


def test_more_sizes_of_keys_than_columns_share_columns() -> None:
    assert [delta.columns_of([1, 128, 384])(value) for value in (1, 384)] == ["1", "384"]
    column = delta.columns_of(range(20))
    assert [column(value) for value in (0, 63, 64, 383, 1407, 5000)] == ["0+", "0+", "64+", "256+", "1024+", "1024+"]


@pytest.mark.parametrize("name", ["a b", "../x", HOSTILE, "é" * 300, "a_b"])
def test_an_anchor_is_a_name_that_a_link_can_have(name: str) -> None:
    anchor = details.anchor_of(name)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,140}", anchor)
    assert (anchor == name) is (name == "a_b")
    assert anchor != details.anchor_of(f"{name}!")


def test_what_the_guard_kept_from_running_is_no_wall_of_red(browser: Browser, tmp_path: Path) -> None:
    """One configuration crashed; of the others nobody knows anything."""
    base = plain_run()
    new = guard_broken(base, ILLEGAL)
    evidence = Evidence(new, "run.json", lambda name: [], base, compare(base, new), limit)
    page = tmp_path / "page.html"
    page.write_text(render(evidence), encoding="utf-8")
    driver = browser.open(page, 1280, 900)
    title = driver.find_element(By.TAG_NAME, "h1").text
    assert title.startswith(f"REGRESSED hd64_t1_sk128 crashes: {ILLEGAL}")
    assert "1 of 144 worse" in driver.find_element(By.ID, "changes").find_element(By.XPATH, "..").text
    cells = driver.find_elements(By.CSS_SELECTOR, "table.delta td")
    assert {cell.text for cell in cells if "wrong" in cell.get_attribute("class")} == {"crash\n1/3"}
    assert {cell.text for cell in cells if "withheld" in cell.get_attribute("class")} == {"not run"}
    assert [item for item in driver.execute_script(CONTRAST) if item[0] < 4.5] == []
