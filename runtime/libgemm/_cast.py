"""Casting to 8 bits: the numbers, the scales that products take, and both of the transposed matrix too."""

from typing import Any, Literal, TypeVar

from libgemm._args import DTYPES, new, pick, pointer, run, same_type
from libgemm._framework import EIGHT_BITS, LaunchStream, dtype_name, maker, written
from libgemm._library import ffi, invalid, lib
from libgemm._matrix import matrix, row_major
from libgemm._tensor import View, view

T = TypeVar("T")
Granularity = Literal["tensor", "row", "1x128", "128x128"]

GRANULARITIES = {
    "tensor": lib.LIBGEMM_PER_TENSOR,
    "row": lib.LIBGEMM_PER_ROW,
    "1x128": lib.LIBGEMM_PER_1X128,
    "128x128": lib.LIBGEMM_PER_128X128,
}
ALIGN = 32  # bytes of a sector, which memory moves as a whole: where new rows begin. Products need 16


class Call:
    """One call: its arguments, and the arrays that it writes."""

    def __init__(self, x: Any, granularity: str, dtype: Any, power_of_two: bool, stream: Any):
        self.x, self.granularity, self.dtype = x, granularity, dtype_name(dtype, EIGHT_BITS)
        self.launch = launch = LaunchStream(stream, x)
        self.args = args = new("cast")
        args.granularity = pick(GRANULARITIES, granularity, "granularity")
        found = view(x, "x", launch)
        given = matrix(found, "x", prefer=0)
        if given.trans:
            raise invalid(f"x has strides {found.strides}: row-major (last stride 1) is needed")
        args.m, args.n, args.batch = given.rows, given.cols, given.batch
        args.a, args.lda, args.batch_stride_a = pointer(given.pointer), given.ld, given.batch_stride
        args.a_type = pick(DTYPES, found.dtype, "dtype of x")
        args.d_type = DTYPES[self.dtype]
        args.scale_power_of_two = bool(power_of_two)
        args.stream = ffi.cast("libgemm_stream", launch.handle)
        self.lead = found.shape[:-2]
        self.alive = [found]  # until the launch
        self.written: list[Any] = []

    def take(self, array: Any, name: str, write: bool = True) -> View:
        found = view(array, name, self.launch, write=write)
        self.alive.append(found)
        if write:
            self.written.append(array)
        setattr(self.args, name, pointer(found.pointer))
        setattr(self.args, f"batch_stride_{name}", found.strides[0] if self.lead else 0)
        return found

    def new(self, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        return self.launch.new_out(maker((*self.lead, *shape), dtype, self.x, f"out, whose {name}"), self.x)

    def values(self, out: Any, name: str, rows: int, cols: int) -> Any:
        """[rows, cols] of 8 bits; new ones have rows that begin on 32 bytes."""
        if out is None:
            ld = -(-cols // ALIGN) * ALIGN
            out = self.new((rows, ld), self.dtype, name)
            out = out if ld == cols else out[..., :cols]
        found = self.take(out, name)
        same_type(self.dtype, **{name: found})
        setattr(self.args, f"ld{name}", row_major(found, name, (*self.lead, rows, cols)).ld)
        return out

    def scales(self, out: Any, name: str, rows: int, cols: int, along: tuple[str, str]) -> Any:
        """Of values of that size. `along`: what the C interface calls the strides of its rows and columns. Of 1x128
        those of a column lie one behind the other in new ones, as products read them fastest."""
        steps = -(-cols // 128)
        shape = {"tensor": (), "row": (rows, 1), "1x128": (rows, steps), "128x128": (-(-rows // 128), steps)}
        wanted = shape[self.granularity]
        if out is None and self.granularity == "1x128":
            out = self.new((steps, rows), "f32", name).swapaxes(-1, -2)
        elif out is None:
            out = self.new(wanted, "f32", name)
        found = self.take(out, name)
        same_type("f32", **{name: found})
        if found.shape != (*self.lead, *wanted) or (self.granularity == "row" and rows > 1 and found.strides[-2] != 1):
            given = f"{name} has shape {found.shape}, strides {found.strides}"
            raise invalid(f"{given}: ({', '.join(map(str, (*self.lead, *wanted)))}) is needed, of 'row' contiguous")
        if len(wanted) == 2 and self.granularity != "row":
            for axis, stride in zip(along, found.strides[-2:], strict=True):
                setattr(self.args, f"{name}_stride_{axis}", stride)
        return out

    def divide_by(self, scale: Any) -> None:
        """A scale that is not made."""
        if self.granularity != "tensor":
            raise invalid(f"scale with granularity = {self.granularity!r}: only that of 'tensor' can be given")
        found = self.take(scale, "scale", write=False)
        same_type("f32", scale=found)
        if found.shape != self.lead and (self.lead or found.shape != (1,)):
            wanted = f"({self.lead[0]},)" if self.lead else "() or (1,)"
            raise invalid(f"scale has shape {found.shape}: {wanted} is needed")
        self.args.scale_given = 1

    def make(self) -> None:
        run("cast", self.args, self.x, self.launch, "the largest magnitudes")
        written(self.written)


def places(out: Any, count: int, scale: Any) -> tuple[Any, ...]:
    """What `out` has, None where it is to be made."""
    if out is None:
        return (None,) * count
    if not isinstance(out, tuple) or len(out) != count or (scale is not None and out[1] is not None):
        without = ", without a scale, which is given" if scale is not None else ""
        raise invalid(f"out is {type(out).__name__}: a tuple of {count} arrays or None is needed{without}")
    return out


def cast(
    x: T, granularity: Granularity, *, dtype: Any = "e4m3", scale: Any = None, power_of_two: bool = False,
    out: Any = None, stream: Any = None,
) -> tuple[T, T]:  # fmt: skip
    """(values, scale): x / scale in 8 bits, and float32 scales made of x, as gemm() and grouped_mm() take them.

    x            [M,N] or [batch,M,N], float16, bfloat16 or float32, row-major.
    granularity  what shares a scale, of a batch in each matrix. "tensor": all of it; scale is [] or [batch]. "row": a
                 row; [M,1] or [batch,M,1]. "1x128": 128 columns of a row; [M,N/128], rounded up, those of a column one
                 behind the other. "128x128": 128 columns of 128 rows; [M/128,N/128], row-major.
    dtype        of values: "e4m3" (float8_e4m3fn), or "e5m2" (float8_e5m2), which reaches further and is coarser: for
                 gradients. A torch dtype too.
    scale        with "tensor": one that is there already, of a calibration say, to divide by. It is what is returned.
    power_of_two  True: scales are rounded up to powers of two.
    out          None, or (values, scale) to write to, each an array or None; scales of blocks at any strides.
    A scale is the largest magnitude of what shares it / the type's largest number, 448 or 57344; 1 where that is 0.
    Values are rounded to the nearest, of two to the even one; those beyond the largest become it, Inf and NaN become
    NaN and count for no scale.
    New rows of values begin on 32 bytes: where N is no multiple of 32 they are a view. Rows given in `out` may begin
    anywhere; products read those that begin on 16 bytes without a copy, and on 32 faster. A product's second operand
    is values.mT, with scale.mT. Raises Error. Order, memory and autograd are as in gemm().
    """
    call = Call(x, granularity, dtype, power_of_two, stream)
    m, n = call.args.m, call.args.n
    to_values, to_scale = places(out, 2, scale)
    values = call.values(to_values, "d", m, n)
    if scale is None:
        scale = call.scales(to_scale, "scale", m, n, ("m", "n"))
    else:
        call.divide_by(scale)
    call.make()
    return values, scale


def cast_transpose(
    x: T, granularity: Granularity, *, dtype: Any = "e4m3", scale: Any = None, power_of_two: bool = False,
    out: Any = None, stream: Any = None,
) -> tuple[T, T, T, T]:  # fmt: skip
    """(values, scale, values_t, scale_t): what cast() makes of x, and of x.mT, in one pass: training needs both.

    values_t is [N,M] or [batch,N,M]. "tensor" and "128x128": scale_t is a view of scale. "row" and "1x128": it has
    scales of its own, of columns of x or of 128 rows of them, as cast(x.mT) would make them.
    out is None, or (values, scale, values_t, scale_t). The rest is as in cast().
    """
    call = Call(x, granularity, dtype, power_of_two, stream)
    m, n = call.args.m, call.args.n
    to_values, to_scale, to_values_t, to_scale_t = places(out, 4, scale)
    values, values_t = call.values(to_values, "d", m, n), call.values(to_values_t, "d_t", n, m)
    if scale is None:
        scale = call.scales(to_scale, "scale", m, n, ("m", "n"))
    else:
        call.divide_by(scale)
    if granularity in ("row", "1x128"):
        scale_t = call.scales(to_scale_t, "scale_t", n, m, ("n", "m"))
    elif to_scale_t is None:
        scale_t = scale if granularity == "tensor" else scale.swapaxes(-1, -2)
    else:
        raise invalid(f"out has a scale_t, which is a view of scale with granularity = {granularity!r}: pass None")
    call.make()
    return values, scale, values_t, scale_t
