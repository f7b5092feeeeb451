"""FIFOs, devices and sockets where gdb would look for a core's files, and the sysroot without them."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from gdbext.starting import specialfiles
from gdbext.starting.corefile import read_core
from gdbext.starting.executable import DEBUG_FOLDERS
from gdbext.starting.specialfiles import choose_places

from .elfs import Maker
from .test_corefile import BASE, LIB, OTHER, OWN, written


@pytest.fixture
def there(tmp_path):
    """A sysroot with a program and a library, which has two names, and its core."""
    root = tmp_path / "root"
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr" / "lib" / "libx.so.1.2").write_bytes(Maker().executable(OTHER))
    (root / "usr" / "lib" / "libx.so.1").symlink_to("libx.so.1.2")
    (root / "p").write_bytes(Maker().executable(OWN))
    return root


def places(there, tmp_path, *more, debug_dir=None):
    maker = Maker()
    modules = [(BASE, "/p", maker.executable(OWN)), (LIB, "/usr/lib/libx.so.1.2", maker.executable(OTHER))]
    modules += [(LIB + 0x10000 * number, path, bytes(4096)) for number, path in enumerate(more, 1)]
    facts = read_core(written(tmp_path, "core", maker.core(modules)))
    folder = tmp_path / "folder"
    return choose_places(facts, None, str(there), debug_dir, lambda: folder.mkdir() or str(folder))


def test_nothing_is_made_where_all_is_regular(there, tmp_path):
    (there / "data").mkdir()
    (there / "exe").symlink_to("/proc/self/exe")  # a link by way of the kernel's files is none of them
    found = places(there, tmp_path, "/data", "/exe", "/gone", "relative")
    assert found == (None, str(there), None, [])
    assert not (tmp_path / "folder").exists()


def make_socket(path):
    os.chdir(os.path.dirname(path))  # its name may not be long
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.basename(path))


SPECIAL = {
    "fifo": os.mkfifo,
    "link to a fifo": lambda path: (os.mkfifo(f"{path}-"), os.symlink(f"{path}-", path)),
    "device": lambda path: os.symlink("/dev/zero", path),
    "terminal": lambda path: os.symlink("/dev/tty", path),
    "socket": make_socket,
    "file of the kernel": lambda path: os.symlink("/proc/kmsg", path),
    "another": lambda path: os.symlink("/sys/kernel/notes", path),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_sysroot_without_it(there, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SPECIAL[kind](str(there / "data"))
    found = places(there, tmp_path, "/data", "/../data", "/p/x")
    what = "no regular file" if kind in list(SPECIAL)[:5] else "a file of the kernel"
    assert found.remarks[0] == f"{there}/data is {what}: gdb, which would open it, is kept from it"
    made = tmp_path / "folder" / "sysroot"
    assert found.sysroot == str(made) and found.debug_dir is None
    for name in ("p", "usr/lib/libx.so.1.2", "lib/libx.so.1.2", "lib/libx.so.1", "usr/lib/libx.so.1"):
        assert (made / name).samefile(there / name), name
    assert sorted(os.listdir(made)) == ["lib", "p", "usr"]


def test_debug_info_by_build_id(there, tmp_path):
    debug = tmp_path / "debug" / ".build-id" / OTHER.hex()[:2]
    debug.mkdir(parents=True)
    os.mkfifo(debug / f"{OTHER.hex()[2:]}.debug")
    found = places(there, tmp_path, debug_dir=str(tmp_path / "debug"))
    assert found.sysroot == str(there) and not os.path.exists(f"{found.debug_dir}/.build-id")
    assert len(found.remarks) == 1 and found.remarks[0].startswith(f"{debug}/")


def test_files_of_the_kernel_are_not_read(monkeypatch):
    monkeypatch.setattr(specialfiles, "find_debuglink", None)  # called for what is opened
    assert specialfiles._find_special("/proc/version", DEBUG_FOLDERS) == "/proc/version"
    with pytest.raises(TypeError):
        specialfiles._find_special(__file__, DEBUG_FOLDERS)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EIO])
def test_a_file_that_cannot_be_read(there, tmp_path, monkeypatch, number):
    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    os.mkfifo(there / "data")
    monkeypatch.setattr(specialfiles, "pread", fail)
    assert len(places(there, tmp_path, "/data").remarks) == 1


def test_folders_that_may_not_be_listed(there, tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    os.mkfifo(there / "data")
    monkeypatch.setattr(specialfiles.os, "scandir", refuse)
    made = places(there, tmp_path, "/data").sysroot
    assert sorted(os.listdir(made)) == ["p", "usr"] and os.listdir(f"{made}/usr/lib") == ["libx.so.1.2"]
