"""Numbers that follow from jemalloc's source: size classes, slabs, the radix tree, the fields of ``e_bits``."""

import numpy as np
import pytest

from gdbext.heap.jemalloc.layouts import for_version, recorded
from gdbext.heap.jemalloc.read.rtree import geometries, make_geometry
from gdbext.heap.jemalloc.sizes import heaps_of_sizes, size_classes, slab_size


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


def psz2ind(psz, lg_page):
    """Compute what ``sz_psz2ind`` (``sz.h``) does, step for step."""
    if psz > 7 << 60:
        return (62 - lg_page) * 4 - 1
    lg_ceil = (psz - 1).bit_length()
    group = 0 if lg_ceil < 2 + lg_page else lg_ceil - (2 + lg_page)
    lg_delta = lg_page if group == 0 else lg_page + group - 1
    return (group << 2) + ((psz - 1) >> lg_delta & 3)


def pind2sz(pind, lg_page):
    """Compute what ``sz_pind2sz_compute`` (``sz.h``) does, step for step."""
    group, mod = pind >> 2, pind & 3
    return (1 << lg_page + 1 << group if group else 0) + (mod + 1 << max(group, 1) + lg_page - 1)


def quantize_floor(size, pad, lg_page):
    """Compute what ``sz_psz_quantize_floor`` (``sz.c``) does, step for step."""
    pind = psz2ind(size - pad + 1, lg_page)
    return size if pind == 0 else pind2sz(pind - 1, lg_page) + pad


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("lg_page", [12, 14, 16])
def test_unused_extents_have_the_heap_of_their_size(lg_page, padded):
    page = 1 << lg_page
    pad = page if padded else 0
    classes = [size for size in size_classes(232) if size % page == 0]
    near = [size + page * off for size in classes for off in (-2, -1, 0, 1, 2)]
    pages = sorted({size for size in (*near, *(page * count for count in range(1, 600))) if 0 < size <= 7 << 60})
    found = heaps_of_sizes(np.array(pages, np.uint64), size_classes(232), page, pad).tolist()
    assert found == [psz2ind(quantize_floor(size, pad, lg_page), lg_page) for size in pages]


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
