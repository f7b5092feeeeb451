"""A folder of debug info is arranged by build-id, whatever is in it."""

from __future__ import annotations

import os
import re
import subprocess

from gdbext.starting.debugfolder import with_index


def build(folder, name, number):
    """Build a program; return its build-id."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.c").write_text(f"int main(void) {{ return {number}; }}\n")
    subprocess.run(["gcc", "-g", "-Wl,--build-id", "-o", folder / name, folder / "a.c"], check=True)
    (folder / "a.c").unlink()
    notes = subprocess.run(["readelf", "-n", folder / name], check=True, capture_output=True, text=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes)[1]


def test_files_are_found_by_build_id(tmp_path):
    folder, made = tmp_path / "symbols", tmp_path / "made"
    whole = build(folder / "one", "program", 1)
    parted = build(folder / "two", "program", 2)
    subprocess.run(["objcopy", "--only-keep-debug", "program", "program.dbg"], check=True, cwd=folder / "two")
    subprocess.run(["strip", "program"], check=True, cwd=folder / "two")
    (folder / "text").write_text("no ELF file")
    (folder / "cut").write_bytes((folder / "one" / "program").read_bytes()[:100])
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to(folder)
    (folder / "nowhere").symlink_to("none")
    assert with_index(str(folder), str(made)) == f"{folder}:{made}"
    links = {
        str(path.relative_to(made / ".build-id")): os.readlink(path) for path in made.rglob("*") if path.is_symlink()
    }
    assert links == {
        f"{whole[:2]}/{whole[2:]}": str(folder / "one" / "program"),
        f"{whole[:2]}/{whole[2:]}.debug": str(folder / "one" / "program"),
        f"{parted[:2]}/{parted[2:]}": str(folder / "two" / "program"),
        f"{parted[:2]}/{parted[2:]}.debug": str(folder / "two" / "program.dbg"),
    }


def test_what_is_arranged_already_and_what_has_nothing_stay(tmp_path):
    (tmp_path / "arranged" / ".build-id").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("arranged", "empty"):
        assert with_index(str(tmp_path / name), str(tmp_path / "made")) == str(tmp_path / name)
    assert not (tmp_path / "made").exists()
