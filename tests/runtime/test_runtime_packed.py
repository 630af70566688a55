"""Python calls over packed operands, down to the launch: what dimensions, strides and tails come to."""

import libgemm
import pytest
from arrays import KINDS, DLPackArray, InterfaceArray, VersionedArray
from built import needs
from calls import at, launches, new_stream, values, write
from runtime_arrays import array, general
from stand_in import in_stand_in
from torch_like import Tensor, install, torch


@in_stand_in()
def test_packed_rows_with_ends_and_with_offsets():
    write(at(5), "i", [0, 2, 2, 8])
    write(at(6), "q", [0, 2, 2, 8])
    a, b, out = array(0, 8, 6), array(1, 3, 6, 16), array(3, 8, 16)
    bias = array(4, 3, 16)
    libgemm.grouped_mm(a, b, DLPackArray(at(5) + 4, (3,), "i32"), out=out, bias=bias)
    libgemm.grouped_mm(a, b, InterfaceArray(at(6) + 8, (3,), "i64"), out=out)
    libgemm.grouped_gemm_jagged(a, b, VersionedArray(at(5), (4,), "i32"), out=out)
    libgemm.grouped_gemm_jagged(a, b, InterfaceArray(at(6), (4,), "i64"), out=out)
    found = [values(launch) for launch in launches()]
    assert [x["offs_ptr"] for x in found] == [at(5) + 4, at(6) + 8] * 2
    assert [(x["offs_wide"], x["groups"], x["batch_stride_b"]) for x in found] == [(0, 3, 96), (1, 3, 96)] * 2
    assert (found[0]["bias_ptr"], found[0]["batch_stride_bias"], found[1]["bias_ptr"]) == (at(4), 16, 0)


@in_stand_in()
def test_a_transposed_b_of_each_group_and_one_shared_by_all():
    offsets = write(at(5), "i", [0, 2, 2, 8])
    b = array(1, 3, 6, 16, strides=(96, 1, 6))
    libgemm.grouped_mm(array(0, 8, 6), b, DLPackArray(offsets + 4, (3,), "i32"), out=array(3, 8, 16),
                       variant=general("grouped_mm", "nt"))  # fmt: skip
    libgemm.grouped_gemm_jagged(array(0, 8, 6), array(1, 6, 16), DLPackArray(offsets, (4,), "i32"), out=array(3, 8, 16))
    grouped, dense = launches()
    assert (grouped["kernel"], dense["kernel"]) == ("grouped_mm", "gemm")
    assert values(grouped)["ldb"] == 6 and values(dense)["M"] == 8


CUT = [  # what is cut, shapes of a, b and out, and the batch strides that must reach the kernel
    (1, (3, 8, 6), (6, 16), (8, 16), (48, 0, 0, 0)),
    (2, (8, 6), (6, 16), (3, 8, 16), (0, 0, 128, 128)),
    (3, (3, 8, 6), (3, 6, 16), (3, 8, 16), (48, 96, 128, 128)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ragged", "a", "b", "out", "strides"), CUT)
@in_stand_in()
def test_dimensions_say_what_is_cut(ragged, a, b, out, strides, kind):
    ends = None if ragged == 3 else array(5, 3, dtype="i32")
    d, c, bias = array(3, *out, kind=kind), array(2, *out, kind=kind), array(4, 3, 16, kind=kind)
    made = libgemm.grouped_mm(array(0, *a, kind=kind), array(1, *b, kind=kind), ends, c=c, beta=0.5, bias=bias, out=d)
    assert made is d
    found = values(launches()[0])
    assert (found["ragged"], found["groups"], found["zero_tail"]) == (ragged, 3, 0)
    assert (found["M"], found["N"], found["K"]) == (8, 16, 6)
    assert tuple(found[f"batch_stride_{x}"] for x in "abcd") == strides and found["batch_stride_bias"] == 16
    assert [found[f"ld{x}"] for x in "abcd"] == [6, 16, 16, 16] and found["offs_ptr"] == (at(5) if ends else 0)


@in_stand_in()
def test_cut_operands_may_lie_either_way_with_gaps():
    ends = array(5, 3, dtype="i64")
    a, b = array(0, 8, 6, strides=(1, 11)), array(1, 6, 16, strides=(1, 9))
    libgemm.grouped_mm(a, b, ends, out=array(3, 3, 8, 16, strides=(500, 20, 1)), variant=general("grouped_mm", "tt"))
    a, b = array(0, 3, 8, 6, strides=(100, 1, 10)), array(1, 6, 16, strides=(30, 1))
    libgemm.grouped_mm(a, b, ends, out=array(3, 8, 16, strides=(40, 1)), variant=general("grouped_mm", "tn"))
    first, second = map(values, launches())
    assert [first[x] for x in ("lda", "ldb", "ldd", "batch_stride_d", "offs_wide")] == [11, 9, 20, 500, 1]
    assert [second[x] for x in ("lda", "batch_stride_a", "ldb", "ldd")] == [10, 100, 30, 40]


@in_stand_in()
def test_a_tail_is_zeroed_if_asked():
    ends, out = array(5, 3, dtype="i32"), array(3, 8, 16)
    for tail in ("leave", "zero"):
        libgemm.grouped_mm(array(0, 8, 6), array(1, 3, 6, 16), ends, out=out, tail=tail)
        libgemm.grouped_mm(array(0, 3, 8, 6), array(1, 6, 16), ends, out=out, tail=tail)
        libgemm.grouped_mm(array(0, 8, 6), array(1, 6, 16), ends, out=array(3, 3, 8, 16), tail=tail)
        libgemm.grouped_mm(array(0, 3, 8, 6), array(1, 3, 6, 16), out=array(3, 3, 8, 16), tail=tail)
    assert [values(launch)["zero_tail"] for launch in launches()] == [0, 0, 0, 0, 1, 1, 0, 0]
    nothing = array(5, 0, dtype="i32")
    libgemm.grouped_mm(array(0, 8, 6), array(1, 0, 6, 16), nothing, out=out, tail="leave")
    libgemm.grouped_mm(array(0, 8, 6), array(1, 0, 6, 16), nothing, out=out, tail="zero")
    found = [values(launch) for launch in launches()]
    assert len(found) == 9 and (found[8]["groups"], found[8]["zero_tail"], found[8]["K"]) == (0, 1, 0)


@needs(90)
@in_stand_in()
def test_a_call_that_runs_better_with_a_workspace_is_given_one():
    """One B for all groups is a dense product, which shares K between blocks where there are few tiles."""
    install()
    a, b, out = Tensor(at(0), (1, 32768)), Tensor(at(1), (32768, 64)), Tensor(at(3), (1, 64))
    offsets, stream = Tensor(at(5), (3,), "int32"), new_stream()
    libgemm.grouped_gemm_jagged(a, b, offsets, out=out, stream=stream)
    workspace = torch.made[-1]
    assert values(launches()[0])["semaphores"] == workspace.data_ptr() and workspace.pool == stream
    made = len(torch.made)
    libgemm.grouped_mm(a, Tensor(at(1), (2, 32768, 64)), Tensor(at(5), (2,), "int32"), out=out)
    assert len(torch.made) == made  # the kernel over groups wants none


@in_stand_in()
def test_a_new_output_has_the_shape_that_the_dimensions_say():
    install()
    ends = Tensor(at(5), (3,), "int32")
    shapes = [((8, 6), (3, 6, 16), (8, 16)), ((3, 8, 6), (6, 16), (8, 16)), ((8, 6), (6, 16), (3, 8, 16)),
              ((3, 8, 6), (3, 6, 16), (3, 8, 16))]  # fmt: skip
    for a, b, wanted in shapes:
        a, b = Tensor(at(0), a), Tensor(at(1), b)
        made = libgemm.grouped_mm(a, b, None if len(a.shape) == len(b.shape) == 3 else ends, out_dtype="float32")
        assert made.shape == wanted and made.dtype == torch.float32
