"""Casts to 8 bits in C: what each call launches, and every field wrong in turn."""

import pytest
from built import TARGET
from calls import HOST, Arguments, at, launches, log, ok, refused, values
from libgemm._library import ffi, lib
from stand_in import in_stand_in

M, N, BATCH = 256, 384, 3
MAX = 2147483391
HOST_POINTER, OTHER_GPU = "host", "other GPU"
TENSOR, ROW, BY_1X128, BY_128X128 = range(1, 5)
BF16, F32, E4M3, E5M2 = 2, 3, 4, 5


def cast(granularity: int, transposed: bool = False, gpu: int = 0, **changes) -> Arguments:
    """A legal call: scales of 1x128 by columns, of 128x128 by rows."""
    fields = {
        "m": M, "n": N, "a": at(0, gpu), "d": at(1, gpu), "scale": at(2, gpu), "lda": N, "ldd": N, "a_type": BF16,
        "granularity": granularity, "workspace": at(6, gpu), "workspace_bytes": 65536,
    }  # fmt: skip
    if granularity >= BY_1X128:
        by_rows = granularity == BY_128X128
        fields |= {"scale_stride_m": N // 128 if by_rows else 1, "scale_stride_n": 1 if by_rows else M}
    if transposed:
        fields |= {"d_t": at(3, gpu), "ldd_t": M}
        if granularity in (ROW, BY_1X128):
            fields |= {"scale_t": at(4, gpu), "scale_t_stride_n": 1, "scale_t_stride_m": N}
    return Arguments("cast", **{**fields, **changes})


def launched(granularity: int, transposed: bool = False, **changes) -> list[dict]:
    before = len(launches())
    ok(cast(granularity, transposed, **changes).run())
    return launches()[before:]


TILES = M // 128 * (N // 128)
AMAX = M // 64 * -(-N // 256), M // 64 * -(-N // 512)  # of one number, and of rows' and columns'
# granularity, with D^T, kernels and their blocks
LAUNCHES = [
    (TENSOR, False, [("cast_amax", 1), ("cast_amax", AMAX[0]), ("cast_tensor", 4 * TILES)]),
    (ROW, False, [("cast_rows", M)]),
    (BY_1X128, False, [("cast_1x128", 4 * TILES)]),
    (BY_128X128, False, [("cast_128x128", TILES)]),
    (TENSOR, True, [("cast_amax", 1), ("cast_amax", AMAX[0]), ("cast_transpose", TILES)]),
    (ROW, True, [("cast_amax", 1), ("cast_amax", AMAX[1]), ("cast_transpose_rows", 2 * TILES)]),
    (BY_1X128, True, [("cast_transpose_rows", TILES)]),
    (BY_128X128, True, [("cast_transpose", TILES)]),
]


def own(kernel: str, in_words: bool = True) -> str:
    """Hopper has a kernel of its own for aligned 16-bit numbers whose D^T has scales of its own."""
    return f"{kernel}_words" if (kernel, TARGET, in_words) == ("cast_transpose_rows", 90, True) else kernel


@pytest.mark.parametrize(("granularity", "transposed", "kernels"), LAUNCHES)
@in_stand_in()
def test_a_cast_is_told_where_everything_is(granularity, transposed, kernels):
    made = launched(granularity, transposed)
    assert [(x["kernel"], x["grid"][0]) for x in made] == [(own(kernel), blocks) for kernel, blocks in kernels]
    assert all("align16" in x["variant"] for x in made)
    part = {TENSOR: "__64x256x", ROW: "__32x512x"}.get(granularity)
    assert all(part in x["variant"] for x in made if x["kernel"] == "cast_amax")
    found = values(made[-1])
    assert [found[x] for x in ("a_ptr", "q_ptr", "scale_ptr", "M", "N", "lda", "ldd")] == [
        at(0), at(1), at(2), M, N, N, N,
    ]  # fmt: skip
    if transposed:
        assert found["granularity"] == granularity
        assert [found["q_t_ptr"], found["ldd_t"]] == [at(3), M]
        assert found.get("scale_t_ptr") == (at(4) if granularity in (ROW, BY_1X128) else None)
    words = {TENSOR: 1, ROW: M + N}.get(granularity)
    for phase, first in enumerate(made[:-1], 1):
        told = values(first)
        assert [told["phase"], told["entries"], told["amax_ptr"], found["amax_ptr"]] == [phase, words, at(6), at(6)]


@in_stand_in()
def test_every_matrix_of_a_batch_has_its_tiles_and_its_scales():
    steps = {"batch_stride_a": M * N, "batch_stride_d": M * N, "batch_stride_scale": 4096, "batch": BATCH}
    for granularity, blocks in ((TENSOR, 4 * TILES), (ROW, M), (BY_1X128, 4 * TILES), (BY_128X128, TILES)):
        *_, made = launched(granularity, **steps)
        assert made["grid"][0] == BATCH * blocks
        assert [values(made)[x] for x in ("batch_stride_a", "batch_stride_d", "batch_stride_scale")] == [
            M * N, M * N, 4096,
        ]  # fmt: skip
    more = {"batch_stride_d_t": M * N, "batch_stride_scale_t": 8192}
    clear, amax, made = launched(ROW, True, **steps, **more)
    assert values(clear)["entries"] == BATCH * (M + N) and clear["grid"][0] == -(-BATCH * (M + N) // 1024)
    assert (amax["grid"][0], made["grid"][0]) == (BATCH * AMAX[1], BATCH * 2 * TILES)
    assert [values(made)[x] for x in more] == [M * N, 8192]


@in_stand_in()
def test_a_scale_that_is_given_needs_no_pass_before():
    (made,) = launched(TENSOR, scale_given=1, workspace=0, workspace_bytes=0)
    assert (made["kernel"], values(made)["scale_given"]) == ("cast_tensor", 1)
    (made,) = launched(TENSOR, True, scale_given=1, workspace=0, workspace_bytes=0)
    assert (made["kernel"], values(made)["scale_given"]) == ("cast_transpose", 1)


@in_stand_in()
def test_workspace_is_a_word_for_each_largest_magnitude():
    for granularity, transposed, words in (
        (TENSOR, False, 1), (TENSOR, True, 1), (ROW, False, 0), (ROW, True, M + N), (BY_1X128, True, 0),
        (BY_128X128, True, 0),
    ):  # fmt: skip
        assert cast(granularity, transposed, batch=BATCH).workspace() == 4 * BATCH * words
        assert cast(granularity, transposed, m=0).workspace() == 0
        ok(cast(granularity, transposed, workspace=at(6) if words else 0, workspace_bytes=4 * words).run())
    assert cast(TENSOR, scale_given=1).workspace() == 0


@in_stand_in()
def test_what_lies_off_16_bytes_goes_by_elements():
    plain = {"batch": BATCH, "batch_stride_a": M * N, "batch_stride_d": M * N, "batch_stride_d_t": M * N}
    for odd in (
        {"a": at(0) + 2}, {"d": at(1) + 1}, {"lda": N + 1}, {"ldd": N + 1}, {"n": N - 1},
        {"batch_stride_a": M * N + 1}, {"batch_stride_d": M * N + 4},
    ):  # fmt: skip
        for granularity in (TENSOR, ROW, BY_1X128, BY_128X128):
            assert all("align16" not in x["variant"] for x in launched(granularity, **plain | odd)), odd
    for odd in ({"d_t": at(3) + 8}, {"ldd_t": M + 1}, {"m": M - 1}, {"batch_stride_d_t": M * N + 1}):
        assert "align16" not in launched(BY_128X128, True, **plain | odd)[-1]["variant"], odd
    assert "align16" in launched(BY_1X128, m=M - 1)[-1]["variant"]  # only D^T has rows of that length
    assert "align16" in launched(ROW, batch_stride_a=1, batch_stride_d=1)[-1]["variant"]  # there is one matrix


@pytest.mark.parametrize(("granularity", "transposed", "kernels"), LAUNCHES)
@in_stand_in()
def test_e5m2_has_kernels_of_its_own(granularity, transposed, kernels):
    for odd, a_type in ((0, BF16), (2, BF16), (0, F32)):
        made = launched(granularity, transposed, d_type=E5M2, a=at(0) + 2 * odd, a_type=a_type)
        kinds = [v["variant"].split("__")[0].split("_")[-2:] for v in made]
        of_a = "bf16" if a_type == BF16 else "f32"
        assert [x["kernel"] for x in made] == [own(kernel, not odd and a_type == BF16) for kernel, _ in kernels]
        assert all(f"_{of_a}_{of_a}_e5m2_" in x["variant"] for x in made if x["kernel"] != "cast_amax"), kinds
        assert all(("align16" in x["variant"]) == (not odd) for x in made)


@in_stand_in()
def test_long_rows_have_wider_blocks():
    sizes = (2048, 2064, 4096, 4104, 8200, 16392, 2047, 4097)  # the last two do not begin rows on 16 bytes
    names = {n: launched(ROW, n=n, lda=n, ldd=n)[0]["variant"] for n in sizes}
    widths = {n: int(name.split("__")[2].split("x")[1]) for n, name in names.items()}
    assert widths == {2048: 2048, 2064: 4096, 4096: 4096, 4104: 8192, 8200: 16384, 16392: 8192, 2047: 2048, 4097: 4096}


@in_stand_in()
def test_without_d_nothing_is_told_of_it():
    for granularity in (ROW, BY_1X128):
        found = values(launched(granularity, True, d=0, scale=0, ldd=0)[-1])
        assert [found["q_ptr"], found["scale_ptr"], found["q_t_ptr"]] == [0, 0, at(3)]
    found = values(launched(BY_128X128, True, d=0, ldd=0)[-1])
    assert [found["q_ptr"], found["scale_ptr"]] == [0, at(2)]


@pytest.mark.parametrize("empty", [{"m": 0}, {"n": 0}, {"batch": 0}], ids=str)
@in_stand_in(driver=False)
def test_empty_calls_need_nothing(empty):
    for granularity in (TENSOR, ROW, BY_1X128, BY_128X128):
        ok(Arguments("cast", **{"m": 4, "n": 8, "granularity": granularity, "a_type": F32, **empty}).run())


EVERY = [(g, t) for g in (TENSOR, ROW, BY_1X128, BY_128X128) for t in (False, True)]
BAD = [
    *[(way, {x: v}, (f"{x} = {v}", f"0 to {MAX // 2}")) for way in EVERY[:2] for x in "mn" for v in (-1, MAX // 2 + 1)],
    *[((ROW, False), {"batch": v}, (f"batch = {v}",)) for v in (-1, MAX + 1)],
    *[((ROW, False), {"a_type": v}, (f"a_type = {v}", "LIBGEMM_F32 (3)")) for v in (0, 4, 9)],
    *[((ROW, False), {"d_type": v}, (f"d_type = {v}", "LIBGEMM_E4M3 (4), LIBGEMM_E5M2 (5)")) for v in (0, 2, 6)],
    *[((ROW, False), {"granularity": v}, (f"granularity = {v}", "1 to 4")) for v in (0, 5, -1)],
    *[((TENSOR, False), {x: 2}, (f"{x} = 2", "0 to 1")) for x in ("scale_given", "scale_power_of_two")],
    *[((g, False), {"scale_given": 1}, ("scale_given = 1", f"granularity = {g}", "LIBGEMM_PER_TENSOR"))
      for g in (ROW, BY_1X128, BY_128X128)],
    ((TENSOR, False), {"scale_given": 1, "scale_power_of_two": 1}, ("scale_given = 1", "scale_power_of_two = 1")),
    *[(way, {"lda": N - 1}, (f"lda = {N - 1}", f"n = {N}")) for way in EVERY],
    *[(way, {"ldd": N - 1}, (f"ldd = {N - 1}", f"n = {N}")) for way in EVERY],
    *[(way, {"ldd_t": M - 1}, (f"ldd_t = {M - 1}", f"m = {M}")) for way in EVERY if way[1]],
    *[(way, {"d": 0, "d_t": 0}, ("d and d_t are NULL",)) for way in EVERY],
    *[(way, {x: 0}, (f"{x} is NULL",)) for way in EVERY for x in ("a", "scale")],
    *[((g, True), {"scale_t": 0}, ("scale_t is NULL",)) for g in (ROW, BY_1X128)],
    *[((g, True), {"scale_t": "e"}, ("scale_t = 0x", "NULL is needed")) for g in (TENSOR, BY_128X128)],
    *[((g, False), {"scale_t": "e"}, ("scale_t = 0x", "d_t = (nil)")) for g in (ROW, BY_1X128)],
    *[((g, True), {"d": 0}, ("scale = 0x", "d = NULL")) for g in (ROW, BY_1X128)],
    *[(way, {x: HOST_POINTER}, (f"{x} = 0x", "host memory")) for way in EVERY for x in ("a", "d", "scale")],
    *[(way, {"d_t": HOST_POINTER}, ("d_t = 0x", "host memory")) for way in EVERY if way[1]],
    *[((g, True), {"scale_t": HOST_POINTER}, ("scale_t = 0x", "host memory")) for g in (ROW, BY_1X128)],
    *[((ROW, True), {x: OTHER_GPU}, (f"{x} is memory of GPU 1",)) for x in ("a", "scale", "scale_t", "d_t")],
    ((TENSOR, False), {"a": "odd"}, ("a = 0x", "multiple of 2")),
    ((TENSOR, False), {"scale": "odd"}, ("scale = 0x", "multiple of 4")),
    *[((BY_1X128, True), {x: "a"}, (f"a == {x}",)) for x in ("d", "d_t")],
    ((BY_1X128, True), {"d_t": "d"}, ("d == d_t",)),
    *[((g, True), {"workspace": 0}, ("workspace = ", "libgemm_cast_workspace")) for g in (TENSOR, ROW)],
    ((ROW, True), {"workspace": "odd"}, ("workspace = ", "multiple of 16")),
    ((ROW, True), {"workspace": HOST_POINTER}, ("workspace = 0x", "host memory")),
    ((ROW, True), {"workspace_bytes": 4 * (M + N) - 1}, (f"{4 * (M + N)} are needed",)),
    *[((g, False), {x: v}, (f"{x} = {v}", "share their memory")) for g in (BY_1X128, BY_128X128)
      for x in ("scale_stride_m", "scale_stride_n") for v in (0, -1)],
    ((BY_1X128, False), {"scale_stride_n": M - 1}, (f"scale_stride_n = {M - 1}", f"{M} x {N // 128} scales")),
    ((BY_1X128, False), {"scale_stride_m": 2}, ("scale_stride_m = 2", "share their memory")),
    ((BY_1X128, False), {"scale_stride_m": 2, "scale_stride_n": 2 * M - 2}, ("share their memory",)),
    ((BY_1X128, True), {"scale_t_stride_m": N - 1}, (f"scale_t_stride_m = {N - 1}", f"{N} x {M // 128} scales")),
]  # fmt: skip


@pytest.mark.parametrize(("way", "bad", "parts"), BAD, ids=str)
@in_stand_in(SM=f"{TARGET},{TARGET}")
def test_a_bad_call_says_what_is_wrong_and_launches_nothing(way, bad, parts):
    words = {HOST_POINTER: int(ffi.cast("uintptr_t", ffi.from_buffer(HOST))), OTHER_GPU: at(0, 1), "odd": at(9) + 1,
             "a": at(0), "d": at(1), "e": at(4)}  # fmt: skip
    made = cast(*way).set(**{name: words.get(value, value) for name, value in bad.items()})
    refused(made.run(), "INVALID_ARGUMENT", *parts)
    assert log("cuLaunchKernelEx") == []


@pytest.mark.parametrize(
    "sizes", [{"m": MAX // 2, "n": MAX // 2}, {"batch": MAX}, {"batch": 2**28, "m": 256, "n": 384}], ids=str
)
@in_stand_in()
def test_more_than_a_launch_takes_is_refused(sizes):
    for granularity, transposed in EVERY:
        made = cast(granularity, transposed).set(**sizes, lda=2**31, ldd=2**31, ldd_t=2**31)
        refused(made.run(), "UNSUPPORTED", "tiles of 32 x 128", "one launch takes")
        refused(lib.libgemm_cast_workspace(made.args, ffi.new("uint64_t *")), "UNSUPPORTED", "one launch takes")
    many = {"m": 1, "n": 2**20, "batch": 2**12, "lda": 2**20, "ldd": 2**20, "ldd_t": 1}
    refused(cast(ROW, True).set(**many).run(), "UNSUPPORTED", "rows and columns with scales of their own")
    refused(
        lib.libgemm_cast_workspace(cast(ROW, True).set(**many).args, ffi.new("uint64_t *")), "UNSUPPORTED", "scales"
    )
    rows = {"m": 2**28, "batch": 64, "n": 1, "lda": 1, "ldd": 1}  # a block for each row
    refused(cast(ROW).set(**rows).run(), "UNSUPPORTED", f"{2**34} tiles", "one launch takes")
    assert log("cuLaunchKernelEx") == []


@in_stand_in()
def test_places_of_scales_that_are_apart_are_taken():
    for strides in ((1, M), (1, M + 5), (3, 1), (7, 2), (2, 2 * M)):
        launched(BY_1X128, scale_stride_m=strides[0], scale_stride_n=strides[1])
    launched(BY_1X128, m=1, scale_stride_m=0, scale_stride_n=1)  # of one row a stride means nothing
    launched(BY_1X128, n=128, lda=128, ldd=128, scale_stride_m=1, scale_stride_n=0)


@in_stand_in()
def test_structs_of_another_size_are_refused():
    made = cast(ROW)
    made.args.size -= 8
    refused(lib.libgemm_cast(made.args), "INVALID_ARGUMENT", "libgemm_cast_args")
    refused(lib.libgemm_cast_workspace(made.args, ffi.NULL), "INVALID_ARGUMENT", "bytes is NULL")
