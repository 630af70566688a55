"""Persistent dense rows: the boxes a launch encodes, and where clusters are weighed. On the stand-in; no numerics."""

import itertools
import struct

import libgemm
from built import needs
from calls import last_launch, ok, records
from libgemm.inspect import variants
from stand_in import in_stand_in, run
from test_capi_fast import call_of, fast_rows, maps
from test_capi_threads import PROGRAMS, SANITIZERS, sanitized, sources

from kernels.table.boxes import box_of as table_box
from kernels.table.boxes import shares_k
from kernels.table.families import DENSE_SM90
from kernels.table.model import SHARED_ELEMENTS, SHARED_ROWS

pytestmark = needs(90)


def persistent_rows() -> list:
    taken = {name for name, family in DENSE_SM90.items() if family.store == "tma" and not family.split}
    return [v for v in fast_rows() if v.family in taken]


def box_of(launch: dict, name: str) -> tuple[int, int]:
    """(rows, columns) of what one copy moves, as the tensor map has it."""
    words = struct.unpack_from("<Q5Q4Q5H", maps(launch)[name][1], 8)
    return words[-4], words[-5]


@in_stand_in()
def test_boxes_are_those_of_the_tile_and_d_leaves_by_as_many_as_its_width_needs():
    seen, forms, lines, by_k = set(), set(), set(), set()
    for v in persistent_rows():
        ok(call_of(v).run())
        launch, swap = last_launch(), DENSE_SM90[v.family].swap_ab
        config = records()[v.name]["config"]
        across = config["across"]
        below = config["cluster"] // across
        a, b = box_of(launch, "a"), box_of(launch, "b")
        share_a, share_b = (below, across) if swap else (across, below)
        turned_a = v.block_k // (share_a if shares_k(v.block_m, share_a) else 1), table_box(v.block_m)
        turned_b = v.block_k // (share_b if shares_k(v.block_n, share_b) else 1), table_box(v.block_n)
        by_k |= {v.block_k // rows for (rows, _), turned in ((a, v.trans_a), (b, not v.trans_b)) if turned}
        inner = 32 if v.a_type == "f32" else 64  # 128 bytes
        assert v.ctas == config["cluster"], v.name
        assert a == (turned_a if v.trans_a else (v.block_m // share_a, inner)), v.name
        assert b == ((v.block_n // share_b, inner) if v.trans_b else turned_b), v.name
        forms.add((below, across))
        lines |= {rows for rows, turned in ((a[1], v.trans_a), (b[1], not v.trans_b)) if turned}
        width = v.block_m if swap else v.block_n
        parts = {64: "d", 32: "d_2", 16: "d_4", 8: "d_8"}
        if not DENSE_SM90[v.family].any_width:
            parts = {min(64, width): "d"}
        used = {"d"} if width >= 64 or len(parts) == 1 else set()
        used |= {name for size, name in parts.items() if size < 64 and width % 64 & size}
        assert {name for name in maps(launch) if name.startswith("d")} == used, v.name
        for size, name in parts.items():
            if name in used:
                assert size in box_of(launch, name), (v.name, name)
        seen |= used
    assert lines >= {32, 64} and by_k >= {1, 2, 4}
    assert seen == {"d", "d_2", "d_4", "d_8"} and forms >= {(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 2)}


@in_stand_in()
def test_c_comes_by_the_boxes_that_d_leaves_by():
    for v in persistent_rows()[::7]:
        ok(call_of(v, beta=1.0).run())
        found = maps(last_launch())
        assert {name[1:] for name in found if name[0] == "c"} == {name[1:] for name in found if name[0] == "d"}, v.name
        for name in found:
            if name[0] == "c":
                assert box_of(last_launch(), name) == box_of(last_launch(), f"d{name[1:]}")


def test_a_tile_narrower_than_the_widest_part_of_d_gives_a_launch_a_map_for_it_all_the_same(tmp_path):
    """Tuning has such tiles, the library none: the C core by itself."""
    folder = sources()
    sanitized(
        folder,
        SANITIZERS["address and undefined"],
        tmp_path / "maps",
        *sorted(folder.rglob("*.c")),
        PROGRAMS / "maps.c",
    )
    done = run(tmp_path / "maps", driver=False)
    assert (done.returncode, done.stdout) == (0, "32\n"), done.stdout + done.stderr


def test_blocks_that_load_for_each_other_are_chosen_where_rows_begin_on_16_bytes_or_d_is_small_or_both_are_turned():
    blocks = {v.name: v.ctas for v in variants()}
    shared = {"aligned": set(), "turned": set(), "not": set(), "few": set(), "small": set()}
    for m, n, k, layout in itertools.product(
        (40, 72, 200, 1000, 2056, 4104), (520, 1080, 3080, 8200), (264, 2056, 5128), ("nn", "nt", "tn", "tt")
    ):
        for off in (False, True):
            sizes = [size if off else size // 16 * 16 for size in (m, n, k)]
            choice = libgemm.explain(*sizes, "bf16", layout=layout, target=90)
            small = sizes[0] * sizes[1] <= SHARED_ELEMENTS
            large = "turned" if layout == "tn" else "aligned"
            kind = "not" if off else "few" if m <= SHARED_ROWS else "small" if small else large
            shared[kind].add(blocks[choice.variant.name])
    assert shared["aligned"] == {1} and shared["not"] >= {1, 2, 4}, shared
    assert all(1 in shared[kind] and max(shared[kind]) > 1 for kind in ("few", "small", "turned")), shared


def test_the_edge_of_what_is_small_is_exact_and_a_batch_has_the_tiles_of_all_its_products():
    blocks, seen = {v.name: v.ctas for v in variants()}, 0
    blocks |= {v.name: 1 for v in variants() if v.family.startswith("stream")}  # weighed whatever is small

    def shares(*sizes, **words) -> bool:
        return blocks[libgemm.explain(*sizes, "bf16", target=90, **words).variant.name] > 1

    for n, k, layout in itertools.product(
        (256, 352, 384, 512, 704, 768), (2048, 3072, 4096, 5120, 12288), ("nn", "nt")
    ):
        most = SHARED_ELEMENTS * (1 if layout == "nt" or n % 64 == 0 else 2)  # rows of B that begin on 64 bytes
        rows = most // n
        assert rows * n == most and rows > SHARED_ROWS
        seen += shares(rows, n, k, layout=layout)
        assert not shares(rows + 1, n, k, layout=layout), (rows + 1, n, k, layout)
        assert not shares(rows // 2, n, k, layout=layout, batch=3), (rows // 2, n, k, layout)
    assert seen > 5
