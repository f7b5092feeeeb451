"""``gx shapes``: listed, shown, guessed, saved, and then used where no types are left."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.gdb.test_json_schema import fields_of, leaves, wrong_fields
from tests.support.boards import Board
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable
from tests.support.truth import address

PROGRAM = ("hash_tables", "--entries", "2000")


def staged(stages, info):
    try:
        return stages.get(Board("core", info, "system"), PROGRAM[0], PROGRAM[1:])
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def here(stages):
    return staged(stages, "debug")


def own_folder(folder):
    return f"set gx shapes-folder {folder}"


def test_the_shapes_of_the_pack_and_the_users_own(here, tmp_path):
    (tmp_path / "broken.toml").write_text('name = "broken"\nkind = "bag"\n')
    own = 'name = "unbound-lruhash"\nkind = "list"\n[list]\nfirst = "self"\n[node]\nnext = "+8"\n'
    (tmp_path / "unbound-lruhash.toml").write_text(own)
    answer = here.gdbext("gx shapes list", own_folder(tmp_path))
    rows = {row["name"]: row for row in answer["data"]["shapes"]}
    files = {path.stem for path in (CHECKOUT / "shapes").glob("*.toml")}
    assert files <= {row["file"].partition(".")[0] for row in rows.values()}
    assert rows["unbound-lruhash"]["kind"] == "list", "the user's own rules"
    assert rows["unbound-slabhash"]["types"] == "struct slabhash"
    assert [problem["kind"] for problem in answer["problems"]] == ["shape-file"]
    assert "broken.toml: kind: 'bag' is not one of list" in answer["problems"][0]["message"]


def test_a_shape_with_the_types_that_it_fits_here(here):
    shown = ask(here, *(f"gx shapes show {name}" for name in ("unbound-slabhash", "bsd-list", "sqlite-hash")))
    answer, none, declared = (each["data"] for each in shown)
    assert answer["fits"] == [{"type": "struct slabhash", "members": "debug info", "reason": ""}]
    assert answer["text"] == (CHECKOUT / "shapes" / "unbound-slabhash.toml").read_text()
    assert none["fits"] == []
    assert declared["fits"] == [{"type": "any address", "members": "declarations", "reason": ""}]


def test_a_guess_is_a_file_ready_to_be_used(here, tmp_path):
    """Guessed shapes of the incident's types walk to what the program says of itself."""
    output = here.text("gx shapes guess struct slabhash", "gx shapes guess struct lruhash")
    texts = ["# Guessed from" + part for part in output.out.split("# Guessed from")[1:]]
    assert len(texts) == 2
    (tmp_path / "slabhash.toml").write_text(texts[0])
    (tmp_path / "lruhash.toml").write_text(texts[1])
    answer = here.gdbext("walklist stale_cache --shape slabhash", own_folder(tmp_path))
    check_tables(answer, here.truth.details["groups"]["stale"])


def check_tables(answer, truth):
    data = answer["data"]
    assert data["total"] == truth["total"]
    for found, wanted in zip(data["tables"], truth["tables"]):
        assert found["address"] == wanted["address"]
        names = ("bins", "entries", "walked", "nonempty", "max_len", "max_bin")
        assert {name: found[name] for name in names} == {name: wanted[name] for name in names}
    assert len(data["tables"]) == len(truth["tables"])


def test_saved_offsets_serve_a_stripped_program(stages, here, tmp_path):
    file = tmp_path / "my-slabs.toml"
    saved = here.gdbext(f"gx shapes save struct slabhash {file}")
    assert [row["file"] for row in saved["data"]["files"]] == [str(file), str(tmp_path / "my-slabs-table.toml")]
    text = file.read_text() + (tmp_path / "my-slabs-table.toml").read_text()
    assert "struct slabhash" not in text and "overflow" not in text
    bare = staged(stages, "bare")
    group = bare.truth.details["groups"]["stale"]
    answer = bare.gdbext(f"walklist {address(group['address']):#x} --shape my-slabs", own_folder(tmp_path))
    check_tables(answer, group)
    assert "members from offsets in the file" in answer["evidence"][0]["message"]


def test_a_shape_is_saved_by_its_name_too(here, tmp_path):
    by_type, by_name = tmp_path / "by-type.toml", tmp_path / "by-name.toml"
    ask(here, f"gx shapes save struct lruhash {by_type}", f"gx shapes save unbound-lruhash {by_name}")
    assert by_name.read_text().replace("by-name", "by-type") == by_type.read_text()


def test_what_is_refused_is_told_in_one_line(here, tmp_path):
    taken = tmp_path / "taken.toml"
    taken.write_text("mine")
    half = tmp_path / "half.toml"
    (tmp_path / "half-table.toml").write_text("mine")
    commands = {
        "gx shapes show": "a shape's name is missing; gx shapes list has them",
        "gx shapes show unbound-lruhsh": "no shape unbound-lruhsh; did you mean unbound-lruhash?",
        "gx shapes guess": "a type is missing; gx shapes guess struct table",
        "gx shapes guess struct nothing": "no type struct nothing; structures are written with struct before the name",
        "gx shapes guess int": "nothing in int looks like a list or a table",
        "gx shapes save struct lruhash": "'lruhash' cannot hold a shape; lower case, digits and dashes, then .toml",
        "gx shapes save lruhash": "a type or shape, and a file, are needed",
        f"gx shapes save struct lruhash {taken}": f"{taken} exists already; it is not overwritten",
        f"gx shapes save struct slabhash {half}": "half-table.toml exists already; it is not overwritten",
        f"gx shapes save struct lruhash {tmp_path}/Mine.toml": "cannot hold a shape; lower case, digits and dashes",
        f"gx shapes save struct lruhash {tmp_path}/uthash.toml": "a shape uthash exists already; it would be hidden",
        f"gx shapes save struct lruhash {tmp_path}/no/mine.toml": "mine.toml cannot be written: No such file",
        f"gx shapes save struct nothing {tmp_path}/mine.toml": "neither a shape nor a type struct nothing",
        f"gx shapes save bsd-list {tmp_path}/mine.toml": "shape bsd-list: list.first: an untyped object has no members",
    }
    output = here.text("set gx safe on", *commands)
    for message in commands.values():
        assert message in output.err + output.out
    assert taken.read_text() == "mine" and not half.exists()
    assert "Traceback" not in output.err


def test_shapes_are_listed_without_a_program(tmp_path):
    from tests.support import gdbrun, preloaded

    answer = tmp_path / "answer.json"
    commands = [f"gx shapes list --json={answer}", "gx shapes show unbound-lruhash"]
    output = preloaded.run_gdb(
        [*gdbrun.load_pack(), *(word for command in commands for word in ("-ex", command))], 60, tmp_path
    )
    rows = gdbrun.read_envelope(answer, output)["data"]["shapes"]
    assert "unbound-lruhash" in [row["name"] for row in rows]
    assert "In this program: ?" in output.out


def test_answers_are_as_documented(here, tmp_path):
    commands = {
        "shapes list": "gx shapes list",
        "shapes show": "gx shapes show unbound-lruhash",
        "shapes guess": "gx shapes guess struct lruhash",
        "shapes save": f"gx shapes save struct slabhash {tmp_path}/documented.toml",
    }
    for name, answer in zip(commands, ask(here, *commands.values())):
        known = fields_of(name)
        assert answer["schema"] == f"gdbext/{name.replace(' ', '-')}/2"
        assert sorted(set(wrong_fields(answer["data"], known))) == []
        assert {path for path, _ in leaves(answer["data"], known)} == set(known)


def test_shapes_are_only_under_gx(here):
    output = here.text("gx shapes", "gx shapes gess struct lruhash", "shapes list", "show commands")
    assert "Undefined" in output.err and "shapes" in output.err
    assert "did you mean gx shapes guess?" in output.err
