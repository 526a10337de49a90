"""The site as its readers meet it: from files and from a server, at a desk and on a phone, in light and dark."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from fmha.harness import archive
from fmha.harness.archive.index import index_file
from fmha.harness.errors import ExitCode
from tests.evidence.records import IDS, STARTED, accepted, measured, record
from tests.harness.support import GOOD
from tests.report.browser import CONTRAST, Browser
from tests.trends.conftest import repository

pytestmark = pytest.mark.xdist_group("trends-site")  # one history is published, and one browser starts
HOSTILE = "<script>document.title='owned'</script>\"'&<img src=x onerror=document.title='owned'>"
SUBJECTS = [HOSTILE if place == 8 else f"Change {place}" for place in range(11)] + ["Change 11\x1b[2J\u202e"]
SCRIPTS = {f'<script src="{name}" defer>' for name in ("assets/uplot.js", "assets/trends.js", "data/index.js")}
Command = Callable[..., int]
Said = pytest.CaptureFixture[str]
WINDOWS = {"desk": (1280, 900), "phone": (360, 740)}
PAGES = ("index.html", "trends.html", "commits.html", "commit")


@pytest.fixture(scope="module")
def shas(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return []


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, shas: list[str]) -> Path:
    """Twelve commits with a run each; the largest relative error steps at the ninth, whose subject is hostile."""
    folder = tmp_path_factory.mktemp("history")
    shas += repository(folder, SUBJECTS)
    for place, sha in enumerate(shas):
        factor = (1 + 0.05 * (place % 3)) * (30 if place >= 8 else 1)
        run = record(sha=sha, outcomes={IDS[0]: measured(max_error=GOOD.max_error * factor)})
        name = HOSTILE if place == 11 else "emulator"
        host = run.host.model_copy(update={"name": name})
        archive.write(run.model_copy(update={"started": STARTED.replace(hour=place), "host": host}), folder / "results")
    return folder


@pytest.fixture(scope="module")
def site(root: Path, command: Command) -> Path:
    assert command(root, "publish", "site") == ExitCode.PASS
    return root / "site"


def page_of(site: Path, shas: list[str], name: str) -> Path:
    return site / "commit" / f"{shas[8]}.html" if name == "commit" else site / name


def ready(browser: Browser) -> None:
    WebDriverWait(browser.driver, 30).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "#chart canvas"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_page_is_readable(site: Path, shas: list[str], browser: Browser, window: str, dark: bool) -> None:
    for name in PAGES:
        driver = browser.open(page_of(site, shas, name), *WINDOWS[window], dark=dark)
        if name == "trends.html":
            ready(browser)
        assert driver.get_log("browser") == [], name
        assert [item for item in driver.execute_script(CONTRAST) if item[0] < 4.5] == [], name
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert driver.execute_script(wider) == 0, name
        assert "owned" not in driver.title or "document.title" in driver.title
        assert driver.find_elements(By.CSS_SELECTOR, "main script, img") == []


def test_the_first_page_says_what_changed_and_leads_to_it(site: Path, shas: list[str], browser: Browser) -> None:
    driver = browser.open(site / "index.html")
    (row,) = driver.find_elements(By.CSS_SELECTOR, "#changes + table tbody tr")
    assert HOSTILE in row.text
    assert f"worse largest relative error grew 30 times in {IDS[0]} (emulator; by chance once in 1e" in row.text
    assert row.find_element(By.TAG_NAME, "a").get_attribute("href").endswith(f"commit/{shas[8]}.html")
    row.find_element(By.LINK_TEXT, IDS[0]).click()
    ready(browser)
    assert driver.current_url.endswith(f"trends.html#{IDS[0]}/max_error")
    assert driver.find_element(By.ID, "title").text == f"largest relative error: {IDS[0]}"
    (step,) = driver.find_elements(By.CSS_SELECTOR, "#steps tr")
    assert step.text.startswith(shas[8][:12])
    assert HOSTILE in step.text


def test_a_terminal_that_is_shown_a_page_obeys_nothing(site: Path) -> None:
    pages = [path.read_text() for path in sorted(site.rglob("*.html"))]
    assert any("Change 11\ufffd[2J\ufffd" in page for page in pages)
    assert not [page for page in pages if "\x1b" in page or "\u202e" in page]


def test_a_series_is_read_from_the_keyboard(site: Path, shas: list[str], browser: Browser) -> None:
    driver = browser.open(site / "trends.html")
    ready(browser)
    chart = driver.find_element(By.ID, "chart")
    said = driver.find_element(By.ID, "said")
    assert said.get_attribute("aria-live") == "polite"
    for key, place in ((Keys.END, 11), (Keys.HOME, 0), (Keys.ARROW_RIGHT, 1), (Keys.ARROW_LEFT, 0)):
        chart.send_keys(key)
        assert said.text.startswith(shas[place][:12]), key
    assert re.search(r"; emulator 0\.00100", said.text)
    chart.send_keys(Keys.ENTER)
    assert driver.current_url.endswith(f"commit/{shas[0]}.html")


def test_figures_and_configurations_are_chosen_and_stay_in_the_address(site: Path, browser: Browser) -> None:
    driver = browser.open(site / "trends.html")
    ready(browser)
    driver.find_element(By.ID, "find").send_keys("t32")
    options = driver.find_elements(By.CSS_SELECTOR, "#subject option")
    assert [item.text for item in options] == [IDS[1]]
    options[0].click()
    WebDriverWait(driver, 30).until(lambda _: IDS[1] in driver.find_element(By.ID, "title").text)
    next(item for item in driver.find_elements(By.CSS_SELECTOR, "#figure option") if item.text == "LSE error").click()
    WebDriverWait(driver, 30).until(lambda _: driver.current_url.endswith(f"#{IDS[1]}/lse_error"))
    driver.refresh()
    ready(browser)
    assert driver.find_element(By.ID, "title").text == f"LSE error: {IDS[1]}"


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_shows_the_same(served: str, browser: Browser) -> None:
    driver = browser.driver
    driver.get_log("browser")  # type: ignore[no-untyped-call]
    driver.get(f"{served}/trends.html")
    ready(browser)
    assert driver.get_log("browser") == []  # type: ignore[no-untyped-call]
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded
    assert all(name.startswith((served, "data:")) for name in loaded)


def test_nothing_inline_runs(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert "default-src 'none'" in text
        assert "unsafe" not in text or path.name == "latest.html"
        assert set(re.findall(r"<script[^>]*>", text)) <= SCRIPTS, path
        assert not re.search(r"<[^>]+\son\w+=|<img", text), path


def mistaken(script: str) -> list[str]:
    """The script, once for each place where it shows text of records, with that text taken for markup there."""
    places = [(found.start(), found[0], ".innerHTML =") for found in re.finditer(r'\.textContent =(?! ")', script)]
    for old, new in (
        ("element.append(content)", "element.innerHTML = content"),
        ("entry.append(make", "entry.innerHTML = index.lines[item.line]; entry.append(make"),
    ):
        assert script.count(old) == 1
        places.append((script.index(old), old, new))
    return [script[:at] + script[at:].replace(old, new, 1) for at, old, new in places]


def test_no_string_becomes_markup(site: Path, tmp_path: Path, browser: Browser) -> None:
    """Whatever the script would do: with a mistake at any one place the browser refuses, and says so."""
    changed = tmp_path / "site"
    shutil.copytree(site, changed)
    path = changed / "assets" / "trends.js"
    script = path.read_text()
    (changed / "data" / f"{IDS[1]}.js").unlink()  # its name is shown as that of something missing
    for text in [script, *mistaken(script)]:
        path.write_text(text)
        driver = browser.open(changed / "trends.html")
        driver.find_element(By.ID, "chart").send_keys(Keys.END)  # a run of the hostile host
        driver.execute_script("location.hash = arguments[0]", f"{IDS[1]}/max_error")
        messages: list[str] = []

        def refused(driver: WebDriver, messages: list[str] = messages) -> bool:
            messages += [item["message"] for item in driver.get_log("browser")]  # type: ignore[no-untyped-call]
            return any("TrustedHTML" in words for words in messages)

        if text == script:
            WebDriverWait(driver, 30).until(
                lambda driver: "cannot be loaded" in driver.find_element(By.ID, "said").text
            )
            assert not refused(driver)
        else:
            WebDriverWait(driver, 30).until(refused)
        assert driver.find_elements(By.CSS_SELECTOR, "main img") == []


def test_what_is_as_it_was_is_left_alone(root: Path, site: Path, command: Command, capsys: Said) -> None:
    kept = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
    assert command(root, "publish", "site", "--json") == ExitCode.PASS
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["changed"], said["runs"], said["commits"]) == ("fmha-publish/1", 0, 12, 12)
    assert said["files"] == len(kept)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()} == kept


def test_the_newest_report_has_the_histories_of_its_host(tmp_path: Path, command: Command) -> None:
    shas = repository(tmp_path, ["One", "Two", "Three"])
    for place, sha in enumerate(shas):
        archive.write(record(sha=sha, minutes=place), tmp_path / "results")
    archive.write(record(sha=shas[0], minutes=-1, host="moon"), tmp_path / "results")
    assert command(tmp_path, "publish", "site") == ExitCode.PASS
    assert re.search(r"hd64_t\d+_sk128: 1 - cosine over 3 runs", (tmp_path / "site" / "latest.html").read_text())
    assert not index_file(tmp_path / "results").exists()


def test_a_folder_with_something_else_in_it_is_not_written_to(
    root: Path, tmp_path: Path, command: Command, capsys: Said
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert command(root, "publish", str(tmp_path)) == ExitCode.USAGE
    assert "has something else than a site in it" in capsys.readouterr().err
    assert command(root, "publish", str(tmp_path / "new"), "--results", str(tmp_path)) == ExitCode.USAGE
    assert "there is no run to publish" in capsys.readouterr().err


def test_the_badge_says_the_newest_verdict(site: Path) -> None:
    endpoint = json.loads((site / "badge.json").read_text())
    assert endpoint == {"schemaVersion": 1, "label": "fmha", "message": "PASS 2 of 2", "color": "brightgreen"}
    assert "<title>fmha: PASS 2 of 2</title>" in (site / "badge.svg").read_text()


def test_the_library_comes_with_its_licence(site: Path) -> None:
    assert "MIT" in (site / "assets" / "uplot.LICENSE").read_text()
    assert (site / "assets" / "uplot.js").read_text().startswith("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")


def test_history_draws_the_step_and_says_how_sure_it_is(
    root: Path, shas: list[str], command: Command, capsys: Said
) -> None:
    assert command(root, "history", IDS[0], "--limit", "2", "--host", "emulator") == ExitCode.PASS
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:3]] == [shas[11][:12], shas[10][:12]]
    assert lines[2].endswith("Change 10")
    drawn = next(line for line in lines if line.startswith("largest relative error on emulator: "))
    bars = drawn.removeprefix("largest relative error on emulator: ").split(" ")[0]
    assert (len(bars), bars[7], bars[8]) == (11, "▁", "█")  # that of the other host is no part of it
    marks = lines[lines.index(drawn) + 1]
    assert marks.index("^") - drawn.index(bars) == 8
    assert re.search(rf"  \^ {shas[8][:12]} 1\.0e-03 to 3\.1e-02, by chance once in 1e\d+: <script>", "\n".join(lines))


@pytest.mark.parametrize("held", ["the commits before", "the baseline"])
def test_a_commit_that_regressed_is_not_told_as_one_that_passed(tmp_path: Path, command: Command, held: str) -> None:
    """Each of its runs passes by itself."""
    shas = repository(tmp_path, ["One", "Two"])
    results = tmp_path / "results"
    before = record(sha=shas[0], outcomes={IDS[0]: {"stats": {"mma": 100}}})
    worse: dict[str, Any] = {"stats": {"mma": 130}} if held == "the commits before" else measured(max_error=0.02)
    after = record(sha=shas[1], minutes=1, outcomes={IDS[0]: worse})
    archive.write(before, results)
    archive.write(after, results)
    if held == "the baseline":
        (results / "baselines").mkdir()
        (results / "baselines" / "emulator.json").write_text(archive.dumps(accepted(before)))
    assert command(tmp_path, "publish", "site") == ExitCode.PASS
    index = (tmp_path / "site" / "index.html").read_text()
    assert '<h1><span class="REGRESSED">REGRESSED</span> Two</h1>' in index
    assert "<title>REGRESSED - fmha over 2 commits</title>" in index
    assert '<td class="left REGRESSED">REGRESSED</td>' in (tmp_path / "site" / "commits.html").read_text()
    if held == "the commits before":
        assert "</a>:\n1 change for the worse." in index
    else:
        assert "Against the baseline: " in index
        assert json.loads((tmp_path / "site" / "badge.json").read_text())["message"] == "REGRESSED 2 of 2"
