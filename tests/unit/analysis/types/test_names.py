"""Names of C++ types."""

import pytest

from gdbext.analysis.types.languages.names import find_plain_name, find_template, readable, template_arguments

STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


@pytest.mark.parametrize(
    "mangled, name",
    [
        ("7Session", "Session"),
        ("N4shop4ItemE", "shop::Item"),
        ("St9exception", "std::exception"),
        ("*N12_GLOBAL__N_11AE", "(anonymous namespace)::A"),
        ("N4shop6WidgetIiEE", None),
        ("99Session", None),
        ("0", None),
        ("", None),
        ("7Ses ion", None),
        ("123456789012345678901234567890x", None),
    ],
)
def test_plain_names(mangled, name):
    assert find_plain_name(mangled) == name


@pytest.mark.parametrize(
    "name, short",
    [
        ("std::map<int, A, std::less<int>, std::allocator<std::pair<int const, A> > >", "std::map<int, A>"),
        (f"std::vector<{STRING}, std::allocator<{STRING} > >", "std::vector<std::string>"),
        ("std::unordered_set<A*, std::hash<A*>, std::equal_to<A*>, std::allocator<B> >", "std::unordered_set<A*>"),
        ("std::map<int, int, by_size, std::allocator<int> >", "std::map<int, int, by_size>"),
        ("std::unique_ptr<A, std::default_delete<A> >", "std::unique_ptr<A>"),
        ("std::vector<int, std::allocator<int> >::iterator", "std::vector<int>::iterator"),
        ("std::vector<int, std::allocator<int> > *", "std::vector<int> *"),
        ("struct item", "struct item"),
        ("a<b", "a<b"),
        (">", ">"),
        ("", ""),
    ],
)
def test_readable_names(name, short):
    assert readable(name) == short


def test_templates():
    assert template_arguments("std::_List_node<std::pair<int, A<b, c> > >") == ["std::pair<int, A<b, c> >"]
    assert template_arguments("plain") == []
    assert find_template("std::allocator<std::_List_node<A<int> > >", "std::_List_node<") == "std::_List_node<A<int> >"
    assert find_template("std::_List_node<A", "std::_List_node<") is None
