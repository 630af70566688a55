"""What the Python calls refuse: the sentence names the argument, what was given and what is needed. No launches."""

import sys

import libgemm
import pytest
from arrays import CPU, CUDA_HOST, DLPackArray, InterfaceArray, VersionedArray
from calls import at, launches, log, ok
from libgemm._library import lib
from stand_in import in_stand_in, run


def f16(place: int, *shape: int, **facts):
    return VersionedArray(at(place), shape, **facts)


def gemm(a=None, b=None, c=None, *, out=None, **words):
    """A legal call but for what the test gives."""
    a, b = f16(0, 4, 6) if a is None else a, f16(1, 6, 8) if b is None else b
    return libgemm.gemm(a, b, c, out=f16(3, 4, 8) if out is None else out, **words)


def mm(a=None, b=None, offs=None, **words):
    offs = VersionedArray(at(5), (3,), "i32") if offs is None else offs
    return libgemm.grouped_mm(a or f16(0, 8, 6), b or f16(1, 3, 6, 8), offs, **{"out": f16(3, 8, 8), **words})


def jagged(offsets, b=None, **words):
    return libgemm.grouped_gemm_jagged(f16(0, 8, 6), b or f16(1, 3, 6, 8), offsets, out=f16(3, 8, 8), **words)


def tables(**changes):
    names = ("a", "b", "d", "m", "n", "k", "lda", "ldb", "ldd")
    given = {name: InterfaceArray(at(7) + 256 * i, (3,), "i64") for i, name in enumerate(names)}
    return libgemm.grouped_gemm_tables(**{"dtype": "f16", **given, **changes})


class Numpyish:
    """Has a shape and nothing else."""

    shape = (4, 6)


class OldCapsule(DLPackArray):
    """A producer that gives out a capsule somebody has used."""

    name = b"used_dltensor"


OPERANDS = {
    "wrong dtype": (lambda: gemm(f16(0, 4, 6, dtype="f64")), ("a has DLPack type code 2, 64 bits", "f16, bf16, f32")),
    "vector type": (lambda: gemm(f16(0, 4, 6, lanes=2)), ("a has DLPack type",)),
    "wrong typestr": (lambda: gemm(InterfaceArray(at(0), (4, 6), "f64")), ("a has typestr <f8", "bf16 needs")),
    "integers": (lambda: gemm(f16(0, 4, 6, dtype="i32"), f16(1, 6, 8, dtype="i32")), ("dtype of a = 'i32'",)),
    "integers of a alone": (lambda: gemm(f16(0, 4, 6, dtype="i32")), ("dtype of a = 'i32'", "'bf16'")),
    **{
        f"{field} = {value!r}": (lambda field=field, value=value: gemm(Misread(**{field: value})), (
            "a's __cuda_array_interface__ cannot be read", f"'{field}': {value!r}"))
        for field, value in (("shape", None), ("shape", "46"), ("shape", (4, 6.0)), ("shape", (2**70, 6)),
                             ("typestr", None), ("data", None), ("data", (1.5, False)), ("strides", (12.0, 2)),
                             ("strides", (2**70, 2)))
    },
    "address that wraps": (lambda: gemm(Misread(data=(2**70, False))), (f"a has address {2**70}", "2^64 - 1")),
    "address below 0": (lambda: gemm(Misread(data=(-1, False))), ("a has address -1",)),
    "big-endian": (lambda: gemm(InterfaceArray(at(0), (4, 6), "f32 big-endian")), ("typestr >f4",)),
    "two dtypes": (lambda: gemm(b=f16(1, 6, 8, dtype="bf16")), ("b has dtype bf16", "f16")),
    "rank 1": (lambda: gemm(f16(0, 6)), ("a has shape (6,)", "2 or 3 dimensions")),
    "rank 4": (lambda: gemm(b=f16(1, 1, 1, 6, 8)), ("b has shape (1, 1, 6, 8)", "2 or 3")),
    "no unit stride": (lambda: gemm(f16(0, 4, 6, strides=(12, 2))), ("a has shape (4, 6)", "(12, 2)", "must be 1")),
    "overlapping rows": (lambda: gemm(f16(0, 4, 6, strides=(5, 1))), ("strides (5, 1)",)),
    "broadcast rows": (lambda: gemm(f16(0, 4, 6, strides=(0, 1))), ("strides (0, 1)",)),
    "backward rows": (lambda: gemm(f16(0, 4, 6, strides=(-6, 1))), ("strides (-6, 1)",)),
    "broadcast column": (lambda: gemm(f16(0, 4, 1, strides=(0, 1)), f16(1, 1, 8)), ("a has shape (4, 1)", "(0, 1)")),
    "backward column": (lambda: gemm(f16(0, 4, 1, strides=(-3, 1)), f16(1, 1, 8)), ("strides (-3, 1)",)),
    "broadcast row": (
        lambda: gemm(f16(0, 1, 6, strides=(1, 0)), out=f16(3, 1, 8)), ("a has shape (1, 6)", "strides (1, 0)")),
    "odd bytes": (lambda: gemm(OddStrides(at(0), (4, 6))), ("strides of (13, 2) bytes", "multiples of 2")),
    "K differs": (lambda: gemm(b=f16(1, 7, 8)), ("(4, 6)", "(7, 8)", "a's columns must equal b's rows")),
    "batches differ": (lambda: gemm(f16(0, 2, 4, 6), f16(1, 3, 6, 8)), ("(2, 4, 6)", "(3, 6, 8)", "batch sizes")),
    "CPU array": (lambda: gemm(f16(0, 4, 6, device=(CPU, 0))), ("a is on DLPack device type 1", "CUDA device (2)")),
    "pinned array": (lambda: gemm(f16(0, 4, 6, device=(CUDA_HOST, 0))), ("device type 3",)),
    "host pointer": (lambda: gemm(VersionedArray(4096, (4, 6))), ("a = 0x1000", "host memory")),
    "other GPU": (lambda: gemm(VersionedArray(at(0, 1), (4, 6), device=(2, 1))), ("a is memory of GPU 1",)),
    "no array": (lambda: gemm([[1.0]]), ("a is a builtins.list", "__dlpack__ or __cuda_array_interface__")),
    "shape alone": (lambda: gemm(Numpyish()), ("a is a", "Numpyish")),
    "used capsule": (lambda: gemm(OldCapsule(at(0), (4, 6))), ("no fresh DLPack capsule",)),
}  # fmt: skip
WORDS = {
    "no out": (lambda: libgemm.gemm(f16(0, 4, 6), f16(1, 6, 8)), ("out is needed", "cannot allocate", "f16")),
    "out's shape": (lambda: gemm(out=f16(3, 4, 9)), ("out has shape (4, 9)", "(4, 8) is needed")),
    "out's rank": (lambda: gemm(out=f16(3, 1, 4, 8)), ("out has shape (1, 4, 8)",)),
    "out's dtype": (lambda: gemm(out=f16(3, 4, 8, dtype="bf16")), ("d_type = 2 (bf16) with a_type f16",)),
    "out's dtype twice": (lambda: gemm(out_dtype="f32"), ("out has dtype f16, out_dtype is f32",)),
    "integer out": (lambda: gemm(out=f16(3, 4, 8, dtype="i32")), ("out_dtype = 'i32'",)),
    "out by columns": (lambda: gemm(out=f16(3, 4, 8, strides=(1, 4))), ("out has strides (1, 4)", "row-major")),
    "out with overlap": (
        lambda: gemm(f16(0, 2, 4, 6), out=f16(3, 2, 4, 8, strides=(0, 8, 1))), ("strides (0, 8, 1)", "expanded")),
    "c's shape": (lambda: gemm(c=f16(2, 8, 4), beta=1.0), ("c has shape (8, 4)", "(4, 8) is needed")),
    "c's dtype": (lambda: gemm(c=f16(2, 4, 8, dtype="f32"), beta=1.0), ("c has dtype f32", "f16 is needed")),
    "c by columns": (lambda: gemm(c=f16(2, 4, 8, strides=(1, 4)), beta=1.0), ("c has strides (1, 4)",)),
    "beta without c": (lambda: libgemm.gemm(f16(0, 4, 6), f16(1, 6, 8), beta=0.5), ("beta = 0.5 without c",)),
    "activation": (lambda: gemm(activation="tanh"), ("activation = 'tanh'", "'relu', 'gelu', 'silu'")),
    "activation type": (lambda: gemm(activation=["relu"]), ("activation = ['relu']",)),
    "precision of f16": (lambda: gemm(precision="tf32"), ("precision = 'tf32' with f16",)),
    "no precision": (
        lambda: gemm(f16(0, 4, 6, dtype="f32"), f16(1, 6, 8, dtype="f32"), out=f16(3, 4, 8, dtype="f32")),
        ("precision is needed", "'tf32', 'tf32x3' or 'ieee'")),
    "bad precision": (
        lambda: gemm(f16(0, 4, 6, dtype="f32"), f16(1, 6, 8, dtype="f32"), out=f16(3, 4, 8, dtype="f32"),
                     precision="fast"), ("precision = 'fast'", "'ieee'")),
    "variant": (lambda: gemm(variant="nope"), ("variant = nope",)),
    "stream": (lambda: gemm(stream="zero"), ("stream is a str", "integer handle")),
    "variant's type": (lambda: gemm(variant=5), ("variant = 5", "libgemm.variants()")),
    "variant with a NUL": (lambda: gemm(variant="a\0b"), ("variant = 'a\\x00b'",)),
    "stream that wraps": (lambda: gemm(stream=2**64 + 1), (f"stream = {2**64 + 1}", "0 to 2^64 - 1")),
    "negative stream": (lambda: gemm(stream=-1), ("stream = -1", "0 to 2^64 - 1")),
    "stream that is a bool": (lambda: gemm(stream=True), ("stream is a bool", "integer handle")),
    "stream object without a handle": (lambda: gemm(stream=StreamOf(cuda_stream=None)), ("stream is a StreamOf",)),
    "stream protocol cut short": (lambda: gemm(stream=StreamOf(__cuda_stream__=lambda: (0,))), ("is a StreamOf",)),
    "alpha's type": (lambda: gemm(alpha="1"), ("alpha = '1'", "a number that float32 has")),
    "alpha of bytes": (lambda: gemm(alpha=bytearray(b"1")), ("alpha = bytearray(b'1')",)),
    "no beta": (lambda: gemm(beta=None), ("beta = None: a number",)),
    "no alpha": (lambda: gemm(alpha=None), ("alpha = None",)),
    "alpha beyond float32": (lambda: gemm(alpha=1e300), ("alpha = 1e+300", "float32")),
    "alpha beyond float64": (lambda: gemm(alpha=10**400), ("alpha = 1000", "float32")),
    "beta beyond float32": (lambda: gemm(c=f16(2, 4, 8), beta=-3.5e38), ("beta = -3.5e+38",)),
    "scales without scaling": (
        lambda: gemm(a_scale=f16(5, 1, dtype="f32")), ("a_scale is given without scaling", "'1x128_128x128'")),
    "bias length": (lambda: gemm(bias=f16(4, 4)), ("bias has shape (4,)", "8 contiguous")),
    "bias stride": (lambda: gemm(bias=f16(4, 8, strides=(2,))), ("bias has shape (8,)", "(2,)")),
    "bias dtype": (lambda: gemm(bias=f16(4, 8, dtype="f32")), ("bias has dtype f32", "f16")),
    "bias rows": (lambda: gemm(bias=f16(4, 4, 8)), ("bias has shape (4, 8)",)),
    "bias of a batch": (
        lambda: gemm(f16(0, 2, 4, 6), out=f16(3, 2, 4, 8), bias=f16(4, 3, 8)), ("bias has shape (3, 8)", "(2, 8)")),
}  # fmt: skip
GROUPED = {
    "no ends": (
        lambda: libgemm.grouped_mm(f16(0, 8, 6), f16(1, 3, 6, 8), out=f16(3, 8, 8)),
        ("offs is None", "a of shape (8, 6)", "b of shape (3, 6, 8)", "unless both are 3-D")),
    "ends of a batch": (
        lambda: mm(f16(0, 3, 8, 6)), ("offs is given", "a of shape (3, 8, 6)", "b of shape (3, 6, 8)", "leave it out")),
    "out of cut K": (lambda: mm(b=f16(1, 6, 8)), ("out has shape (8, 8)", "(3, 8, 8) is needed")),
    "out of cut columns": (lambda: mm(f16(0, 3, 8, 6), f16(1, 6, 8), out=f16(3, 3, 8, 8)), ("(8, 8) is needed",)),
    "groups of columns": (
        lambda: mm(f16(0, 2, 8, 6), f16(1, 6, 8)), ("offs speaks of 3 groups", "a has shape (2, 8, 6)")),
    "groups of a batch": (
        lambda: libgemm.grouped_mm(f16(0, 2, 8, 6), f16(1, 3, 6, 8), out=f16(3, 2, 8, 8)),
        ("a has 2 matrices", "b has shape (3, 6, 8)")),
    "K of a batch": (
        lambda: libgemm.grouped_mm(f16(0, 3, 8, 5), f16(1, 3, 6, 8), out=f16(3, 3, 8, 8)),
        ("(3, 8, 5)", "(3, 6, 8)", "must equal")),
    "c of cut K": (
        lambda: mm(b=f16(1, 6, 8), c=f16(2, 8, 8), beta=1.0, out=f16(3, 3, 8, 8)),
        ("c has shape (8, 8)", "(3, 8, 8) is needed")),
    "overlapping groups": (
        lambda: mm(b=f16(1, 6, 8), out=f16(3, 3, 8, 8, strides=(0, 8, 1))), ("strides (0, 8, 1)", "expanded")),
    "strides of a group": (
        lambda: mm(f16(0, 3, 8, 6, strides=(96, 12, 2)), f16(1, 6, 8)), ("a has shape (3, 8, 6)", "must be 1")),
    "a of rank 1": (lambda: mm(f16(0, 6)), ("a has shape (6,)", "2 or 3 dimensions")),
    "b of rank 4": (lambda: mm(b=f16(1, 1, 1, 6, 8)), ("b has shape (1, 1, 6, 8)", "2 or 3 dimensions")),
    "tail": (lambda: mm(tail="clear"), ("tail = 'clear'", "'leave', 'zero'")),
    "tail's type": (lambda: mm(tail=True), ("tail = True", "'leave', 'zero'")),
    "jagged a of rank 3": (
        lambda: libgemm.grouped_gemm_jagged(f16(0, 3, 8, 6), f16(1, 3, 6, 8), VersionedArray(at(5), (4,), "i32")),
        ("a has shape (3, 8, 6)", "2 dimensions")),
    "ends of floats": (lambda: mm(offs=VersionedArray(at(5), (3,), "f32")), ("offs is f32", "int32 or int64")),
    "ends of int16": (lambda: mm(offs=VersionedArray(at(5), (3,), "i16")), ("offs has DLPack type",)),
    "ends of rank 2": (lambda: mm(offs=VersionedArray(at(5), (3, 1), "i32")), ("offs is i32 of shape (3, 1)",)),
    "ends with gaps": (lambda: mm(offs=VersionedArray(at(5), (3,), "i32", (2,))), ("offs is i32", "contiguous")),
    "too few ends": (lambda: mm(offs=VersionedArray(at(5), (2,), "i32")), ("offs speaks of 2 groups", "(3, 6, 8)")),
    "offsets as ends": (lambda: jagged(VersionedArray(at(5), (3,), "i32")), ("group_offsets speaks of 2 groups",)),
    "ends on the CPU": (lambda: mm(offs=VersionedArray(at(5), (3,), "i32", device=(CPU, 0))), ("offs is on DLPack",)),
    "mm K differs": (lambda: mm(b=f16(1, 3, 7, 8)), ("(8, 6)", "(3, 7, 8)", "must equal")),
    "mm bias": (lambda: mm(bias=f16(4, 2, 8)), ("bias has shape (2, 8)", "(3, 8)")),
    "jagged bias": (lambda: jagged(VersionedArray(at(5), (4,), "i32"), f16(1, 6, 8), bias=f16(4, 3, 8)), ("bias",)),
    "mm beta": (lambda: mm(beta=1.0, out=None), ("beta = 1.0 without c",)),
    "mm out": (lambda: mm(out=None), ("out is needed",)),
    "tables of int32": (lambda: tables(m=InterfaceArray(at(7), (3,), "i32")), ("m has dtype i32", "i64")),
    "short table": (lambda: tables(lda=InterfaceArray(at(7), (2,), "i64")), ("lda has shape (2,)", "3 contiguous")),
    "no dtype": (lambda: tables(dtype="int8"), ("dtype int8", "f16, bf16, f32")),
    "dtype with a point": (lambda: tables(dtype="3.5"), ("dtype 3.5 is not",)),
    "empty dtype": (lambda: tables(dtype=""), ("dtype '' is not",)),
    "tables of host memory": (lambda: tables(k=InterfaceArray(4096, (3,), "i64")), ("k = 0x1000", "host memory")),
    "expected pair": (lambda: tables(expected=(64, 64)), ("expected = (64, 64)", "(m, n, k)")),
    "expected floats": (lambda: tables(expected=(64, 64, 0.5)), ("expected = (64, 64, 0.5)", "three integers")),
    "expected far out": (lambda: tables(expected=(2**70, 1, 1)), (f"expected = ({2**70}, 1, 1)", "three integers")),
    "expected below 0": (lambda: tables(expected=(64, -2, 64)), ("expected_n = -2", "0 to")),
    "no c table": (lambda: tables(beta=1.0), ("table c is NULL",)),
    "foreign lists": (lambda: grouped(), ("grouped_gemm_tables", "cannot allocate")),
    "list lengths": (lambda: grouped(b=[f16(1, 6, 8)]), ("b has 1 matrices", "2 are needed")),
    "out lengths": (lambda: grouped(out=[f16(3, 4, 8)]), ("out has 1 matrices", "2 are needed")),
    "list K differs": (lambda: grouped(b=[f16(1, 6, 8), f16(1, 5, 8)]), ("a[1] is 4 x 6, b[1] is 5 x 8",)),
    "list ways differ": (lambda: grouped(a=[f16(0, 4, 6), f16(0, 4, 6, strides=(1, 4))]), ("a: all groups",)),
    "one array of groups": (lambda: grouped(a=f16(0, 2, 4, 6)), ("a is a arrays.VersionedArray", "a sequence of")),
    "one array to write to": (lambda: grouped(out=f16(3, 2, 4, 8)), ("out is a arrays.VersionedArray", "for each")),
    "table d of rank 2": (lambda: tables(d=InterfaceArray(at(7), (3, 1), "i64")), ("d has shape (3, 1)", "1 dim")),
    "list rank": (lambda: grouped(a=[f16(0, 4, 6), f16(0, 1, 4, 6)]), ("a: all groups must be 2-D",)),
    "list dtypes": (lambda: grouped(b=[f16(1, 6, 8), f16(1, 6, 8, dtype="bf16")]), ("matrix 1 of b has dtype bf16",)),
    "list out shape": (lambda: grouped(out=[f16(3, 4, 8), f16(3, 4, 9)]), ("out[1] has shape (4, 9)",)),
    "list bias": (lambda: grouped(bias=[f16(4, 8), f16(4, 7)]), ("bias[1] has shape (7,)",)),
}  # fmt: skip
REFUSED = OPERANDS | WORDS | GROUPED


def grouped(**changes):
    lists = {"a": [f16(0, 4, 6)] * 2, "b": [f16(1, 6, 8)] * 2, "out": [f16(3, 4, 8)] * 2}
    return libgemm.grouped_gemm(**{**lists, **changes})


class OddStrides(InterfaceArray):
    @property
    def __cuda_array_interface__(self):
        return {"shape": (4, 6), "typestr": "<f2", "data": (self.pointer, False), "strides": (13, 2), "version": 3}


class StreamOf:
    def __init__(self, **attributes):
        self.__dict__ |= attributes


class Misread:
    """A legal array but for what it is told to say."""

    def __init__(self, **said):
        fine = {"shape": (4, 6), "typestr": "<f2", "data": (at(0), False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = fine | said


@pytest.mark.parametrize("name", REFUSED)
@in_stand_in()
def test_a_wrong_argument_is_refused(name):
    refuse(*REFUSED[name], "LIBGEMM_UNSUPPORTED" if name == "variant" else "LIBGEMM_INVALID_ARGUMENT")


def refuse(call, parts, wanted: str = "LIBGEMM_INVALID_ARGUMENT") -> None:
    """Nothing was launched, and the sentence has all these parts."""
    with pytest.raises(libgemm.Error) as caught:
        call()
    error = caught.value
    missing = [part for part in parts if part not in str(error)]
    assert not missing, f"{missing} not in: {error}"
    assert (error.name, error.status) == (wanted, getattr(lib, wanted)) and str(error).startswith(wanted)
    assert log("cuLaunchKernelEx") == []


@in_stand_in()
def test_the_calls_these_refusals_start_from_are_legal():
    gemm()
    mm()
    jagged(VersionedArray(at(5), (4,), "i32"))
    tables()
    assert len(launches()) == 4
    ok(lib.libgemm_preload(0))
    assert libgemm.grouped_gemm([], []) == []


@in_stand_in()
def test_a_torch_tensor_on_the_cpu_is_refused():
    torch = pytest.importorskip("torch")
    cpu = torch.zeros(4, 6, dtype=torch.float16)
    for call in (lambda: gemm(cpu), lambda: gemm(out=cpu[:, :1]), lambda: gemm(bias=cpu[0]), lambda: mm(offs=cpu[0])):
        with pytest.raises(libgemm.Error, match="is on cpu: a tensor on a CUDA device is needed"):
            call()
    with pytest.raises(libgemm.Error, match="a is on cpu"):
        libgemm.gemm(cpu, cpu.mT)


WITHOUT_A_DRIVER = """
import libgemm
class Array:
    __cuda_array_interface__ = {"shape": (4, 4), "typestr": "<f2", "data": (4096, False), "version": 3, "stream": 7}
try:
    libgemm.gemm(Array(), Array(), out=Array())
except libgemm.Error as error:
    print(error.name)
"""


def test_a_stream_to_wait_for_without_a_driver_is_an_error_of_ours():
    assert run(sys.executable, "-c", WITHOUT_A_DRIVER, driver=False).stdout == "LIBGEMM_NO_DRIVER\n"


@pytest.mark.parametrize("groups", ["x", 1.5, None, 10**30, -1, 0, 4097, 2**62])
@in_stand_in()
def test_a_number_of_experts_that_is_none_is_refused(groups):
    ids = VersionedArray(at(0), (4, 2), "i32")
    allowed = "1 to 4096" if isinstance(groups, int) and groups < 10**30 else "an integer of 64 bits"
    refuse(lambda: libgemm.moe_route(ids, groups), (f"groups = {groups!r}", allowed))
