"""Classes by their virtual tables: laid out by hand after the Itanium C++ ABI, sound and damaged."""

from __future__ import annotations

import pytest

from gdbext.abi import I386, Abi
from tests.unit.analysis.types.world import CODE, DATA, HEAP, MODULE, World

HIGH, MEDIUM = ("vtable", "high"), ("vtable", "medium")
BIG = Abi(8, "big", "s390x")


def of_class(answer):
    return answer[1] == "vtable"


@pytest.mark.parametrize("abi", [World().abi, I386, BIG], ids=lambda abi: abi.machine)
def test_a_class_is_named_by_its_type_information(abi):
    world = World(abi)
    plain, nested = world.table("6Circle"), world.table("N4shop4ItemE")
    one, other = world.block(world.words(plain, 1)), world.block(world.words(nested, 1))
    assert world.answers() == {one: ("Circle", *HIGH), other: ("shop::Item", *HIGH)}


def test_the_debugger_reads_names_of_templates():
    world = World()
    table = world.table("N4shop6WidgetIiEE")
    at = world.block(world.words(table, 1))
    assert world.answers()[at] == ("N4shop6WidgetIiEE", *HIGH)
    world.demangled["_ZTIN4shop6WidgetIiEE"] = "shop::Widget<int>"
    assert world.answers()[at] == ("shop::Widget<int>", *HIGH)


def test_a_local_class_begins_with_an_asterisk():
    world = World()
    at = world.block(world.words(world.table("*N4shop12_GLOBAL__N_16HiddenE"), 1))
    assert world.answers()[at][0] == "shop::(anonymous namespace)::Hidden"


def test_a_shared_object_is_called_what_made_it():
    world = World()
    mangled = "St23_Sp_counted_ptr_inplaceI7SessionSaIvELN9__gnu_cxx12_Lock_policyE2EE"
    long = "std::_Sp_counted_ptr_inplace<Session, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>"
    world.demangled["_ZTI" + mangled] = long
    at = world.block(world.words(world.table(mangled), 1, 2, 3))
    assert world.answers()[at][0] == "std::make_shared<Session> object"


def test_without_type_information_a_symbol_tells():
    world = World()
    table = world.put(world.words(0, 0, CODE + 16)) + 16
    at = world.block(world.words(table, 1))
    assert not of_class(world.answers()[at])
    world.names[table] = "vtable for shop::Item+16"
    assert world.answers()[at] == ("shop::Item", *HIGH)
    world.names[table] = "_ZTVN4shop4ItemE+16"
    assert world.answers()[at] == ("shop::Item", *HIGH)
    world.names[table] = "vtable for shop::Item+40"  # a function inside it
    assert not of_class(world.answers()[at])


def test_where_the_table_is_not_in_the_core_a_symbol_tells():
    world = World()
    table = world.table("6Circle")
    world.names[table] = "vtable for Circle+16"
    at = world.block(world.words(table, 1))
    world.absent = (MODULE,)
    assert world.answers()[at] == ("Circle", *HIGH)


def test_where_the_runtime_is_not_in_the_core_it_is_less_sure():
    world = World()
    far = HEAP + 0x100000
    at = world.block(world.words(world.table("6Circle", kind=far), 1))
    target = world.target()
    assert not target.lacks(far)
    assert not of_class(world.answers()[at])  # nothing is mapped there: no class
    world.absent = (CODE,)
    at = world.block(world.words(world.table("6Square", kind=CODE + 0x800), 1))
    assert world.answers()[at] == ("Square", *MEDIUM)


def hostile():
    yield "type information points nowhere", lambda world: world.put(world.words(0, 0x13370, CODE)) + 16
    yield "its name points nowhere", lambda world: (
        world.put(world.words(0, world.put(world.words(world.runtime(), 0x10)), CODE)) + 16
    )
    yield "its name is no name", lambda world: world.table("\x01\x02")
    yield "its name is endless", lambda world: world.table("9" * 9000)
    yield "its name lies about its length", lambda world: world.table("99999Circle", kind=0)
    yield "type information of a function", lambda world: world.table("6Circle", kind=world.runtime() - 16)
    yield "not the top of an object", lambda world: world.table("6Circle", top=-16)
    yield "a word that points to itself", looping
    yield "a table of constants", lambda world: world.put(world.words(*range(1, 20))) + 16
    yield "unaligned", lambda world: world.table("6Circle") + 1
    yield "functions that are data", lambda world: world.put(world.words(0, 0, DATA, DATA)) + 16


def looping(world):
    at = world.put(world.words(0, 0, 0, 0))
    world.write(at, world.words(0, at, at, at))
    return at + 16


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in hostile()])
def test_what_is_no_table_is_not_taken_for_one(make):
    world = World()
    at = world.block(world.words(make(world), 1, 2, 3))
    assert not of_class(world.answers()[at])


def test_words_of_blocks_too_short_for_one():
    world = World()
    at = world.block(b"\x01\x02\x03", usable=4)
    assert not of_class(world.answers()[at])


def test_larger_blocks_are_arrays_or_less_sure():
    world = World()
    table = world.table("6Circle")
    one = world.block(world.words(table, 1))
    several = world.block(world.words(table, 1, table, 2, table, 3))
    larger = world.block(world.words(table, 1) + bytes(200))
    assert world.answers() == {
        one: ("Circle", *HIGH),
        several: ("Circle[]", *MEDIUM),
        larger: ("Circle", *MEDIUM),
    }


def test_an_array_made_by_new_has_its_count_before_it():
    world = World()
    table = world.table("6Circle")
    world.block(world.words(table, 1))
    array = world.block(world.words(2, table, 1, table, 2))
    number = world.block(world.words(2, 0x77777777, 1, table, 2))
    answers = world.answers()
    assert answers[array] == ("Circle[]", *MEDIUM)
    assert not of_class(answers[number])
