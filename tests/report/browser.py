"""A real headless Chromium, and what tests ask of a page in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root has none, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
)

# Every visible run of text: its colour over the first opaque background behind it, as a WCAG 2 contrast ratio.
CONTRAST = """
const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const parse = text => { const p = text.match(/[\\d.]+/g).map(Number); return p.length < 4 ? [...p, 1] : p; };
const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const found = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].filter(n => n.nodeType === 3 && n.textContent.trim());
  const style = getComputedStyle(element);
  if (!own.length || !element.getClientRects().length || style.visibility === 'hidden') continue;
  let behind = element, back = [255, 255, 255, 0];
  for (; behind && back[3] === 0; behind = behind.parentElement) back = parse(getComputedStyle(behind).backgroundColor);
  if (back[3] === 0) back = [255, 255, 255, 1];
  const front = parse(element instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [luminance(front), luminance(back)].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), own[0].textContent.trim().slice(0, 40), element.className.toString()]);
}
return found;
"""


def installed() -> tuple[str, str] | None:
    """The browser and its driver, or None."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """A page at a time, in a window of any size and in either colour scheme."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> webdriver.Chrome:
        """Show a file; what the console said before is dropped."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        self.driver.get(page.resolve().as_uri())
        return self.driver


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile; skips the test where there is none."""
    found = installed()
    if found is None:
        pytest.skip("no chromium with chromedriver: apt-get install chromium chromium-driver")
    options = Options()
    options.binary_location = found[0]
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=found[1]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
