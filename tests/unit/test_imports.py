"""The layer law of ``docs/design.md``: an arrow may import, nothing else may.

Every file is parsed, so that a function's own imports count too.
"""

import ast
import re
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each layer may import, besides itself. The leaves may be used by everybody.
LEAVES = {"gdbext", "abi", "columns", "errors", "files", "report", "progress", "wording", "version", "grammar"}
MEMORY = LEAVES | {"memory"}
LAYOUT = MEMORY | {"layout"}
DEBUGINFO = LAYOUT | {"process", "debuginfo"}
TARGET = DEBUGINFO | {"target", "coretarget"}
HEAP = TARGET | {"kernels", "heap"}
ANALYSIS = HEAP | {"structures", "analysis"}
SHOWN = ANALYSIS | {"filecache", "render", "session"}
BRIDGE = SHOWN | {"bridge", "commands", "printers", "starting", "recording", "_mount"}
ALLOWED = {
    "abi": set(),
    "version": set(),
    "errors": set(),
    "columns": set(),
    "report": {"columns"},
    "progress": set(),
    "wording": set(),
    "files": set(),
    "grammar": {"errors", "files"},
    "memory": LEAVES,
    "kernels": LEAVES | {"memory"},
    "layout": MEMORY,
    "process": LEAVES,
    "debuginfo": LAYOUT | {"process"},
    "target": DEBUGINFO,
    "coretarget": TARGET,
    "tracing": TARGET,
    "filecache": MEMORY,
    "snapshot": TARGET | {"starting", "tracing"},
    "heap": HEAP,
    "structures": HEAP,
    "analysis": ANALYSIS,
    "render": LEAVES | {"process", "target"},
    "session": ANALYSIS | {"render"},
    "recording": ANALYSIS | {"render"},
    "starting": MEMORY | {"filecache"},
    "borrowing": TARGET | {"filecache", "starting", "tracing"},
    "gdbext": ANALYSIS | {"session", "tracing", "snapshot", "borrowing", "bridge", "_mount"},
    "bridge": BRIDGE | {"tracing", "borrowing"},
    "helpers": BRIDGE,
    "commands": BRIDGE,
    "printers": BRIDGE,
    "fleet": ANALYSIS | {"filecache", "render", "session", "gdbext", "starting", "cli", "_mount"},
    "load": {"bridge"},
    "_mount": set(),
    "cli": MEMORY | {"filecache", "cli", "_mount", "starting", "recording"},
    "alone": BRIDGE | {"cli", "tracing", "snapshot"},  # what the program starts in place of gdb
}
FACING_GDB = {"bridge", "helpers", "commands", "printers"}


def sources():
    for folder in ("gdbext", "commands", "printers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path


def layer_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "gdbext":
        return parts[0]
    if parts[1:] in (("cli", "alone"), ("cli", "sampler")):  # started by the program in place of gdb
        return "alone"
    return "gdbext" if parts[1] == "__init__" else parts[1]


def imports_of(path):
    """Yield the dotted names that a file imports, those of ``from package import module`` joined."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_layers(path):
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "gdbext":
            known = len(parts) > 1 and parts[1] in ALLOWED
            yield parts[1] if known else "gdbext"


folders = pytest.mark.parametrize("folder", sorted({str(path.parent.relative_to(ROOT)) for path in sources()}))


@folders
def test_a_layer_imports_only_what_lies_below(folder):
    for path in (ROOT / folder).glob("*.py"):
        layer = layer_of(path)
        assert layer in ALLOWED, f"{layer} is no layer of docs/design.md"
        wrong = set(imported_layers(path)) - ALLOWED[layer] - {layer, "gdbext"}
        assert not wrong, path


@folders
def test_only_the_top_imports_gdb(folder):
    for path in (ROOT / folder).glob("*.py"):
        tops = {name.split(".")[0] for name in imports_of(path)}
        if layer_of(path) not in FACING_GDB:
            assert "gdb" not in tops, path
        assert not tops & {"commands", "printers"}, f"{path}: only as gdbext.commands and gdbext.printers"


def test_no_circle_of_files():
    """Whatever imports another, at once or later or for its types alone, is not imported by that again."""
    files = {name_of(path): path for path in sources()}
    edges = {name: {found for found in map(partial(within, files), imports_of(path)) if found} - {name}
             for name, path in files.items()}  # fmt: skip
    assert not circles_of(edges), "these lie in circles, or import what does"


def test_no_circle_of_native_modules():
    """Tests count too, comments do not; ``lib.rs`` holds all of them and what they share."""
    files = {path.stem: path for path in (ROOT / "native" / "src").glob("*.rs") if path.stem != "lib"}
    edges = {name: (native_uses_of(path) & set(files)) - {name} for name, path in files.items()}
    assert any(edges.values()) and not circles_of(edges), "these lie in circles, or use what does"


def native_uses_of(path):
    """Return the modules that a file names: ``crate::a::…``, and each of ``crate::{a::…, b}``."""
    code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    found = set(re.findall(r"\bcrate::(\w+)", code))
    for names in re.findall(r"\bcrate::\{(.*?)\};", code, re.DOTALL):
        found.update(re.findall(r"\w+", names))
    return found


def circles_of(edges):
    """Return what is left of a graph when nodes that lead nowhere are taken out again and again."""
    while ends := {name for name, to in edges.items() if not to}:
        edges = {name: to - ends for name, to in edges.items() if name not in ends}
    return edges


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "gdbext" else ("gdbext", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(files, name):
    """Return the file that an imported name is, or is in; None outside of ours."""
    return next((one for one in (name, name.rpartition(".")[0]) if one in files), None)


def test_allocators_do_not_import_each_other():
    folders = [path.name for path in (ROOT / "gdbext" / "heap").iterdir() if path.is_dir()]
    for path in (ROOT / "gdbext" / "heap").rglob("*.py"):
        own = path.relative_to(ROOT / "gdbext" / "heap").parts[0]
        others = {f"gdbext.heap.{name}" for name in folders if name != own}
        if own != "detect.py":
            assert not [name for name in imports_of(path) if ".".join(name.split(".")[:3]) in others]


def test_start_up_imports_no_numpy():
    """What registration loads must be cheap: every batch run pays for it."""
    seen, todo = set(), [ROOT / "gdbext" / "bridge" / "register.py", ROOT / "gdbext" / "grammar" / "catalogue.py"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in module_level_imports(path):
            assert name.split(".")[0] not in ("numpy", "tabulate"), path
            todo.extend(files_of(name))
    assert len(seen) > 5


def module_level_imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(name):
    """Return the files that importing ``name`` runs: the module and the packages above it."""
    parts = name.split(".")
    if parts[0] != "gdbext":
        return []
    folders = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    paths = [ROOT / f"{folder}.py" for folder in folders]
    paths += [ROOT / folder / "__init__.py" for folder in folders]
    return [path for path in paths if path.is_file()]
