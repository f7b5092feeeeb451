"""What is answered without gdb: where that would know nothing of the core's files."""

from __future__ import annotations

import json
import os

import pytest

from gdbext.cli.job import for_gdb, make_job
from gdbext.cli.options import parse
from gdbext.starting import gdbjob

from .elfs import Maker
from .test_corefile import BASE, OTHER, OWN


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Return a function: whether a line is answered alone, given the build-id of the program that is here, if any."""
    monkeypatch.setattr(gdbjob, "PACKAGES", ("json",))
    core, program = tmp_path / "core", tmp_path / "p"
    core.write_bytes(Maker().core([(BASE, str(program), Maker().executable(OWN))]))

    def ask(line, here=None):
        program.unlink(missing_ok=True)
        if here is not None:
            program.write_bytes(Maker().executable(here) if here else b"no ELF file")
        return make_job(parse([*line.split(), "--core", str(core)]), str(tmp_path), None).alone

    return ask


@pytest.mark.parametrize(
    "line", ["rss", "glibc arenas", "glibc bins", "glibc bins 0x10", "glibc tcache --thread 1", "jemalloc bins 3"]
)
def test_names_alone_are_what_gdb_would_add(alone, line):
    assert alone(line)
    assert not alone(line, here=OWN)


@pytest.mark.parametrize(
    "line", ["triage", "lockwait", "blocks at 0x10", "glibc bins main_arena", "glibc bins 010", "blocks leaks"]
)
def test_expressions_types_and_frames_are_gdbs(alone, line):
    assert not alone(line)


def test_another_build_is_not_the_cores(alone):
    assert alone("rss", here=OTHER) and alone("rss", here=b"")


def test_folders_of_debug_info_are_for_gdb(alone, tmp_path):
    assert not alone(f"rss --debug-dir {tmp_path}") and not alone(f"rss --sysroot {tmp_path}")


def test_without_what_an_answer_needs_it_is_gdbs(alone, monkeypatch):
    monkeypatch.setattr(gdbjob, "PACKAGES", ("json", "no_such_package"))
    assert not alone("rss")


def test_what_gdb_is_kept_from_is_said_where_gdb_is_started(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gdbjob, "PACKAGES", ("json",))
    core, fifo = tmp_path / "core", tmp_path / "fifo"
    core.write_bytes(Maker().core([(BASE, str(fifo), Maker().executable(OWN))]))
    os.mkfifo(fifo)
    job = make_job(parse(["rss", "--core", str(core)]), str(tmp_path), None)
    said = capsys.readouterr().err
    assert job.alone and job.sysroot is None and "is kept from it" not in said
    job = for_gdb(job, str(tmp_path))
    assert not job.alone and job.sysroot == str(tmp_path / "sysroot")
    remark = f"gdbext: {fifo} is no regular file: gdb, which would open it, is kept from it\n"
    assert capsys.readouterr().err == remark
    make_job(parse(["triage", "--core", str(core)]), job.sysroot, None)
    assert capsys.readouterr().err.endswith(remark)


def test_no_gdb_is_started(tmp_path, capfd):
    from gdbext.cli.program import main

    assert main(["shapes", "list", "--json", "--gdb", "/no/gdb"]) == 0
    assert "std-map" in str(json.loads(capfd.readouterr().out)["data"])
