"""A whole target from a core file, without gdb.

gdb numbers the threads of a core in the order of their ``NT_PRSTATUS`` notes, and so does this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Optional, Sequence

from gdbext.abi import Abi
from gdbext.memory import Memory, RegionIndex, view
from gdbext.memory.elf.corenotes import AT_ENTRY, AT_EXECFN, AT_PHDR, CoreThread
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.memory.elf.elffile import Image, find_image
from gdbext.memory.hostfiles import FindFile
from gdbext.process import Identity, Module, Thread
from gdbext.target import Target


def read_core_target(
    path: str, *, sysroot: Optional[str] = None, find_file: Optional[FindFile] = None
) -> Target:
    """Return everything that a core says about its process.

    :param sysroot: folder below which the files that the core names are looked for first.
    :param find_file: given path and build-id, returns a file of this host to try first, or None.
    :raises BadCoreError: when it is not a core that can be read.
    """
    return target_of(ElfCore(path, sysroot=sysroot, find_file=find_file))


def target_of(core: ElfCore) -> Target:
    """Return everything that an open core says about its process."""
    modules = modules_of(core, core.abi)
    facts = core.pages.facts if core.pages is not None else None
    return Target(
        memory=core,
        abi=core.abi,
        identity=_identify(core, modules),
        modules=modules,
        threads=[_thread(number, thread, core) for number, thread in enumerate(core.notes.threads, 1)],
        auxv=core.notes.auxv,
        problems=core.problems,
        signal=core.notes.siginfo,
        presence=core.pages.presence if core.pages is not None else None,
        stopped_clock=facts.clock if facts is not None else None,
        held_seconds=facts.held_seconds if facts is not None else None,
    )


def as_process(target: Target, pid: int) -> Target:
    """Return the copy of a process of this machine as that process, which is still there.

    :param pid: as this machine numbers it.
    """
    return replace(target, identity=replace(target.identity, core=None), live=True, local_pid=pid)


def _thread(number: int, thread: CoreThread, core: ElfCore) -> Thread:
    name = core.pages.facts.names.get(thread.lwp) if core.pages is not None else None
    return Thread(number, thread.lwp, name, thread.stack_pointer, thread.tls, thread.registers)


def _identify(core: ElfCore, modules: Sequence[Module]) -> Identity:
    main = _find_main(core, modules)
    return Identity(
        exe=main.path if main else _find_exe_name(core),
        build_id=main.build_id if main else None,
        pid=core.notes.process.pid if core.notes.process else None,
        core=core.path,
        time=core.pages.facts.time if core.pages is not None else core.mtime,
    )


def _find_main(core: ElfCore, modules: Sequence[Module]) -> Optional[Module]:
    # the kernel tells the program where its own headers and its entry point are
    for kind in (AT_PHDR, AT_ENTRY):
        address = core.notes.auxv.get(kind)
        for module in modules:
            if address is not None and module.base <= address < module.end:
                return module
    return None


def _find_exe_name(core: ElfCore) -> Optional[str]:
    entry = core.notes.auxv.get(AT_ENTRY)
    mapped = next((file.path for file in core.notes.files if entry and file.start <= entry < file.end), None)
    if mapped is not None:
        return mapped
    execfn = core.notes.auxv.get(AT_EXECFN)
    process = core.notes.process
    name = Target(core, core.abi).reader.find_string(execfn) if execfn else None
    return name or (process.arguments.split(" ")[0] or process.comm if process else None) or None


def modules_of(memory: Memory, abi: Abi) -> list[Module]:
    """Return the ELF files mapped in a target, by address; a file mapped twice is there twice.

    A module reaches to the end of its last segment, so that its ``.bss`` belongs to it. Data files, the
    vDSO and files whose first page is absent are left out.
    """
    modules: list[Module] = []
    index = RegionIndex(memory.regions())
    for region in index.regions:
        inside = modules and modules[-1].path == region.name and region.start < modules[-1].end
        if region.offset or not region.name.startswith("/") or region.source == "absent" or inside:
            continue
        image = find_image(lambda at, size: view(memory, at, size), region.start, abi.page_size)
        if image is not None:
            end = _end_of(image, region.name, index)
            modules.append(Module(region.name, image.base, end, image.build_id))
    return list(_clip(modules))


def _end_of(image: Image, path: str, index: RegionIndex) -> int:
    # an ELF file that is mapped as data (by a symbol reader, say) has no .bss after it
    mapped = [region for region in index.within(image.base, image.end) if region.name == path]
    last = max((load for load in image.loads if load.filesz), key=lambda load: load.address, default=None)
    at = image.bias + last.address if last else image.base
    home = next((region for region in reversed(mapped) if at in region), None)
    if last and home and home.offset + at - home.start == last.offset:
        return image.end
    return mapped[-1].end


def _clip(modules: Sequence[Module]) -> Iterator[Module]:
    # a hostile or stale header must not make a module swallow its neighbours
    for module, following in zip(modules, [*modules[1:], None]):
        end = min(module.end, following.base) if following else module.end
        yield Module(module.path, module.base, end, module.build_id)
