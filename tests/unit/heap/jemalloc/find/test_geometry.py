"""Numbers that follow from jemalloc's source: size classes, slabs, the radix tree, the fields of ``e_bits``."""

import pytest

from gdbext.heap.jemalloc.layouts import for_version, recorded
from gdbext.heap.jemalloc.read.rtree import geometries, make_geometry
from gdbext.heap.jemalloc.sizes import size_classes, slab_size


def test_size_classes():
    classes = size_classes(232)
    assert classes[:9] == (8, 16, 32, 48, 64, 80, 96, 112, 128)
    assert classes[35] == 14336 and classes[36] == 16384  # the last small and the first large class
    assert classes[-1] == 7 << 60


@pytest.mark.parametrize(
    ("region", "slab"), [(8, 4096), (48, 12288), (80, 20480), (896, 28672), (14336, 28672)]
)
def test_slabs_are_filled_without_a_rest(region, slab):
    assert slab_size(region, 4096) == slab


@pytest.mark.parametrize(
    ("vaddr", "page", "bits", "compact"),
    [
        (48, 12, (18, 18), True),
        (57, 12, (15, 15, 15), False),
        (48, 16, (16, 16), True),
        (57, 16, (13, 14, 14), False),
        (56, 12, (14, 15, 15), True),
        (47, 12, (17, 18), True),
    ],
)
def test_the_tree_follows_the_build_host(vaddr, page, bits, compact):
    geometry = make_geometry(vaddr, page, 232)
    assert (geometry.bits, geometry.compact, geometry.page) == (bits, compact, 1 << page)
    assert geometry.shift(len(bits) - 1) == page
    assert geometry in geometries(232, 1 << bits[0])
    assert geometry not in geometries(232, 1 << 20)


# shift and width of each field, as jemalloc's headers define them
OLD = {"arena": (0, 12), "slab": (12, 1), "state": (16, 2), "szind": (18, 8), "nfree": (26, 10)}
MIDDLE = {**OLD, "shard": (36, 6), "is_head": (42, 1)}
NEW = {
    "arena": (0, 12), "slab": (12, 1), "pai": (14, 1), "guarded": (16, 1), "state": (17, 3),
    "szind": (20, 8), "nfree": (28, 10), "shard": (38, 6), "is_head": (44, 1),
}


@pytest.mark.parametrize(
    ("version", "fields"), [("5.1.0", OLD), ("5.2.1", MIDDLE), ("5.3.0", NEW), ("5.3.1", NEW)]
)
def test_fields_of_an_extent(version, fields):
    (layout,) = for_version(f"{version}-0-gabcdef")
    found = layout.fields(12)
    assert {name: (found[name].shift, found[name].width) for name in fields} == fields
    assert layout.fields(16)["nfree"].width == 14
    assert found["szind"].take(5 << fields["szind"][0]) == 5


def test_tables_are_newest_first():
    assert [layout.version for layout in recorded()] == ["5.3.1", "5.3.0", "5.2.1", "5.1.0"]
    assert all((layout.nsizes, layout.nbins) == (232, 36) for layout in recorded())
    assert [layout.bins_are_pointers for layout in recorded()] == [False, False, True, False]
    assert for_version("4.5.0-0-g04380e79f1e2428bd0ad000bbc6e3d2dfc6b66a5") == []
