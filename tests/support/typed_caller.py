"""A small caller with types of its own, for mypy --strict to read (tests/test_style.py). Nobody runs it; no test."""

from typing import Protocol

import libgemm


class Array(Protocol):
    """What the caller knows of his framework's arrays."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def layer(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return libgemm.gemm(x, weight, bias=bias, activation="silu", out_dtype="f32")


def experts(x: Array, weights: Array, ends: Array, out: Array) -> Array:
    return libgemm.grouped_mm(x, weights, ends, out=out, tail="zero", alpha=0.5, precision="tf32")


def jagged(x: Array, weights: Array, offsets: Array, stream: int) -> tuple[int, ...]:
    return libgemm.grouped_gemm_jagged(x, weights, offsets, stream=stream).shape


def products(left: list[Array], right: list[Array]) -> list[Array]:
    return libgemm.grouped_gemm(left, right, beta=1.0, out=left)


def by_tables(tables: dict[str, Array]) -> None:
    libgemm.grouped_gemm_tables(
        a=tables["a"], b=tables["b"], d=tables["d"], m=tables["m"], n=tables["n"], k=tables["k"], lda=tables["lda"],
        ldb=tables["ldb"], ldd=tables["ldd"], dtype="bf16", aligned=True, expected=(4096, 4096, 4096),
    )  # fmt: skip


def chosen(size: int) -> tuple[str, float]:
    choice: libgemm.Choice = libgemm.explain(size, size, size, "bf16", layout="nt", target=90)
    return choice.variant.name if choice.variant else choice.reason, choice.expected_us


def drivers() -> list[str]:
    return [target["min_driver"] for target in libgemm.info()["targets"].values()]


def sound() -> bool:
    try:
        libgemm.preload()
    except libgemm.Error as error:
        print(error.status, error.name, error.text)
    return not libgemm.verify() and libgemm.covers(64, 64, 64) and len(libgemm.variants()) > 0


def in_8_bits(x: Array, w: Array) -> Array:
    values, scale = libgemm.cast(x, "1x128", dtype="e5m2", power_of_two=True)
    _, _, turned, own_t = libgemm.cast_transpose(w, "128x128")
    return libgemm.gemm(values, turned, scaling="1x128_128x128", a_scale=scale, b_scale=own_t)
