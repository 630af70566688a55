"""The work of a row, and its roofline time on an H200: what bounds it from below. A leaf; times nothing."""

# What an H200 gave cuBLAS at best, of 8-bit products with "fast" sums; tf32 has half the rate
FLOPS = {"bf16": 800e12, "f16": 800e12, "f32": 400e12, "e4m3": 1430e12}
BYTES = 4.3e12  # what it gave a device copy
WIDTH = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1}


def out_width(row: dict) -> int:
    """Of an element of D: of 8-bit operands it is bfloat16 where it is "same"."""
    return 4 if row.get("out") == "f32" else max(2, WIDTH[row["dtype"]])


def problems(row: dict) -> list[tuple]:
    """(M, N, K) of products that together are the row's; for packed rows one stands for all groups."""
    return row.get("problems") or [(row["m"], row["n"], row["k"])]


def flops(row: dict) -> float:
    return sum(2.0 * m * n * k for m, n, k in problems(row))


def filled(row: dict) -> int:
    """Groups that have rows; 1 for a dense product."""
    return row.get("filled", row.get("groups", 1))


def traffic(row: dict) -> float:
    """Bytes that must move once: A, B, D, and C where it is read. A group without rows needs no B; groups along K share
    A and B between them and have a D each."""
    along_k = row.get("ragged") == "K"
    one_b = along_k or row.get("op") == "grouped_gemm_jagged" or "problems" in row
    bs, ds = 1 if one_b else filled(row), row["groups"] if along_k else 1
    inputs = sum(m * k + bs * n * k for m, n, k in problems(row))
    outputs = sum(ds * m * n for m, n, k in problems(row)) * (2 if row.get("beta") else 1)
    return WIDTH[row["dtype"]] * inputs + out_width(row) * outputs


def floor_us(row: dict) -> float:
    return max(flops(row) / FLOPS[row["dtype"]], traffic(row) / BYTES) * 1e6


def aligned(row: dict) -> bool:
    """Whether every row of A, B and D can start at a multiple of 16 bytes, which TMA asks for."""
    m, n, k, layout = row["m"], row["n"], row["k"], row.get("layout", "NT")
    inner = (k if layout[0] == "N" else m, n if layout[1] == "N" else k)
    return all(size * WIDTH[row["dtype"]] % 16 == 0 for size in inner) and n * out_width(row) % 16 == 0
