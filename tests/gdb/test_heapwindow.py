"""The window ``gxheap``: known to gdb, and what it shows, in a window of a given size."""

from __future__ import annotations

import pytest

SCRIPT = """
import gdb
from gdbext.bridge.heapwindow import HeapWindow
class Window:
    width, height, title, text = 110, 12, "", ""
    def is_valid(self): return True
    def erase(self): self.text = ""
    def write(self, text): self.text += text
window = Window()
shown = HeapWindow(window)
def tell(): print("SHOWN", repr((window.title, window.text)))
shown.render(); tell()
gdb.execute("heapmap", to_string=True)
shown.render(); tell()
shown.click(int(window.width // 3) - 4 + 1, 4, 1); tell()
shown.vscroll(10_000); tell()
shown.hscroll(10_000); tell()
shown.close()
print("END")
"""


@pytest.mark.boards(target=("core",), info=("debug",), glibc=("system",))
def test_what_it_shows(stage, board, tmp_path):
    here = stage("page_patterns")
    script = tmp_path / "window.py"
    script.write_text(SCRIPT)
    known = "python hasattr(gdb, 'register_window_type') and gdb.execute('tui new-layout x gxheap 1 status 0 cmd 1')"
    output = here.text("set style enabled off", known, f"source {script}")
    assert "END" in output.out, output
    shown = [eval(line.partition(" ")[2]) for line in output.out.splitlines() if line.startswith("SHOWN ")]
    titles, texts = {title for title, _ in shown}, [text.splitlines() for _, text in shown]
    assert titles == {"heap"}
    assert texts[0] == ["no heap was walked at this stop: heapmap, or triage, does that"]
    first, clicked, down, last = texts[1:]
    assert all(len(lines) == 12 and max(map(len, lines)) <= 110 for lines in (first, clicked, down, last))
    assert first[0].startswith("glibc main brk 0x") and "█░█░█░█░█░" in first[0] + first[1]
    assert ": used " in first[-1] and "largest block" in first[-1]
    assert clicked[:-1] == first[:-1] and clicked[-1] != first[-1]
    assert down[0] != first[0] and "thread heap" in down[0]
    part = here.gdbext("heapmap")["data"]["parts"][-1]
    assert last[-1].startswith(f"{int(part['end'], 16) - 4096:#x}-{part['end']}")
    assert "unknown" not in output.err.lower()
