"""How long `report` takes beyond its analyses, how large its page is, and how soon a browser has it usable.

    .venv/bin/python bench/pages.py [SUBJECT…] [--blocks N] [--rounds R] [--repeat R]

A core of ten million blocks is made for each subject (`graph.c`, `heap.c`) and removed when it is measured. Two
processes answer over it: one what the page holds, command by command, one `report` with its page; `beyond` is how much
more CPU time that takes, of so many rounds (3) the least of each. Then a headless Chromium opens the page so many times
(5). A page is drawn when the frame after it was parsed is there, and usable when a click on memory by owner has changed
the picture. Seconds of a navigation, from its start; Selenium and chromedriver are needed for it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import cores  # noqa: E402  beside this file

SUBJECTS = {"graph": cores.graph, "heap": cores.heap}
BLOCKS = 10_000_000
ANALYSES = ("triage", "blocks summary", "blocks retained --top 50", "blocks leaks", "lockwait", "lockwait --stacks")
_ASK = """
import sys
import gdbext
with gdbext.open_core(sys.argv[1]) as session:
    for line in sys.argv[2:]:
        session.run(line).to_json()
"""
# Frames are drawn for who sees the page; what is asked for in one is there in the next.
_USABLE = """
const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
addEventListener("DOMContentLoaded", async () => {
  await frame();
  const drawn = performance.now(), tile = document.querySelector("#treemap .tile");
  tile.dispatchEvent(new MouseEvent("click"));
  await frame();
  const answered = document.getElementById("treemap").dataset.zoom === tile.dataset.group;
  window.measured = { drawn: drawn / 1000, usable: answered ? performance.now() / 1000 : null,
                      elements: document.querySelectorAll("*").length };
});
"""


def asked(core: Path, lines: Sequence[str]) -> Mapping[str, float]:
    """Have a session of its own answer some commands; return its CPU seconds, and its peak memory in 10^6 bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _ASK, str(core), *lines], cwd=HERE.parent, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "peak": after.ru_maxrss / 1e3}


def opened(page: Path, repeat: int) -> Sequence[Mapping[str, Any]]:
    """Have a browser open a page so many times; return what was measured each time."""
    from tests.support.browser import browser

    with tempfile.TemporaryDirectory() as downloads, browser(Path(downloads)) as started:
        started.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _USABLE})
        return [_open(started, page) for _ in range(repeat)]


def _open(started: Any, page: Path) -> Mapping[str, Any]:
    started.get("about:blank")
    started.get(page.as_uri())
    return started.execute_async_script(  # type: ignore[no-any-return]
        "const done = arguments[0];"
        "const wait = () => window.measured ? done(window.measured) : setTimeout(wait, 10);"
        "wait();"
    )


def measure(subject: str, blocks: int, rounds: int, repeat: int) -> Mapping[str, Any]:
    """Measure one subject; of both processes the rounds count that took least."""
    with tempfile.TemporaryDirectory(prefix="gdbext-pages-") as folder:
        page = Path(folder, "page.html")
        _, core = SUBJECTS[subject](Path(folder), blocks)
        pairs = [(asked(core, ANALYSES), asked(core, [f"report -o {page}"])) for _ in range(rounds)]
        alone, whole = (min(each, key=lambda one: one["cpu"]) for each in zip(*pairs))
        core.unlink()
        times = opened(page, repeat)
        return {
            "subject": subject, "blocks": blocks, "analyses": alone, "report": whole,
            "beyond": whole["cpu"] - alone["cpu"], "page_bytes": page.stat().st_size,
            "elements": times[0]["elements"], "drawn": [one["drawn"] for one in times],
            "usable": [one["usable"] for one in times],
        }  # fmt: skip


def main() -> None:
    """Measure the subjects that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", choices=[[], *SUBJECTS], default=[])
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    for subject in options.subjects or SUBJECTS:
        print(json.dumps(measure(subject, options.blocks, options.rounds, options.repeat)), flush=True)


if __name__ == "__main__":
    main()
