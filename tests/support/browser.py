"""A headless Chromium, and axe-core, for tests of pages; :class:`Unavailable` says what cannot be had, and why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Unavailable

AXE = "axe-core@4.14.1"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--no-first-run",
)  # fmt: skip


@contextmanager
def browser(downloads: Path) -> Iterator[Any]:
    """Start a Chromium, driven by Selenium; it logs what it asks of the network and what its console says.

    :param downloads: where it saves files.
    :raises Unavailable: there is none, or nothing that drives it.
    """
    try:
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        raise Unavailable("Selenium is not installed") from None
    chromium, driver = next(filter(None, map(shutil.which, _CHROMIUM)), None), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise Unavailable("no chromium, or no chromedriver, here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in _SWITCHES:
        options.add_argument(switch)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="gdbext-browser-") as home:
        options.add_argument(f"--user-data-dir={home}")
        try:
            started = webdriver.Chrome(options=options, service=Service(driver))
        except WebDriverException as error:
            raise Unavailable(f"chromium does not start: {str(error.msg).splitlines()[0]}") from None
        try:
            yield started
        finally:
            started.quit()


def asked_for(started: Any) -> list[str]:
    """Return the addresses that the browser has asked for since the last time, but for parts of its own."""
    events = [json.loads(entry["message"])["message"] for entry in started.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("chrome:", "blob:", "data:"))]


def axe_core() -> str:
    """Return the script of axe-core.

    :raises Unavailable: it is not in the cache, and npm cannot get it.
    """
    place = cache_dir("npm", AXE)
    script = place / "package" / "axe.min.js"
    with locked(f"npm-{AXE}"):
        if not script.exists():
            _unpack(AXE, place)
    return script.read_text(encoding="utf-8")


def _unpack(package: str, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("axe-core: no npm here")
    done = subprocess.run([npm, "pack", "--silent", package], cwd=place, capture_output=True, text=True, timeout=120)
    packed = place / (done.stdout.strip().splitlines() or ["none"])[-1]
    if done.returncode or not packed.exists():
        raise Unavailable(f"axe-core: npm did not get it ({(done.stderr.strip().splitlines() or ['no reason'])[0]})")
    subprocess.run(["tar", "-xf", packed, "-C", place], check=True)
    os.unlink(packed)
