"""Legal calls of a layer of experts and its parts, and of casts, in C, on the stand-in GPU. Holds no test."""

from calls import Arguments, at, launches, ok, write

TOKENS, TOP_K, EXPERTS, K, INNER, N = 24, 2, 3, 64, 80, 48
BF16 = 2
E4M3 = 4
# Of a layer whose weights are of 8 bits and stored as torch's linear has them.
SCALED = {
    "b_type": E4M3, "scaling": 3, "trans_b1": 1, "ldb1": K, "trans_b2": 1, "ldb2": INNER, "b1_scale": 8, "b2_scale": 9,
    "batch_stride_b1_scale": 2, "batch_stride_b2_scale": 5, "b1_scale_stride_n": 1, "b1_scale_stride_k": 7,
    "b2_scale_stride_n": 3, "b2_scale_stride_k": 4,
}  # fmt: skip

LAYERS = {
    "moe_mm": lambda gpu: {
        "m": TOKENS * TOP_K, "n": 2 * INNER, "k": K, "groups": EXPERTS, "a_count": TOKENS, "a": at(0, gpu),
        "b": at(1, gpu), "d": at(3, gpu), "offs": write(at(5, gpu), "i", [10, 20, 48]), "rows": at(7, gpu), "lda": K,
        "ldb": 2 * INNER, "ldd": INNER, "batch_stride_b": 2 * K * INNER, "a_type": BF16, "activation": 3, "gate": 1,
    },
    "moe_route": lambda gpu: {
        "tokens": TOKENS, "top_k": TOP_K, "groups": EXPERTS, "ids": at(0, gpu), "rows": at(1, gpu),
        "places": at(2, gpu), "offs": at(3, gpu), "workspace": at(6, gpu), "workspace_bytes": 2 * EXPERTS * 4,
    },
    "moe_sum": lambda gpu: {
        "tokens": TOKENS, "n": N, "top_k": TOP_K, "a_count": TOKENS * TOP_K, "a": at(0, gpu), "d": at(3, gpu),
        "weights": at(4, gpu), "weights_type": 3, "places": at(5, gpu), "lda": N, "ldd": N, "a_type": BF16,
    },
    "moe_gate": lambda gpu: {
        "m": TOKENS, "n": INNER, "z": at(0, gpu), "h": at(3, gpu), "ldz": 2 * INNER, "ldh": INNER, "a_type": BF16,
        "activation": 3, "gate": 1,
    },
    "moe_cast": lambda gpu: {
        "m": TOKENS * TOP_K, "n": INNER, "a_count": TOKENS, "a": at(0, gpu), "rows": at(7, gpu), "d": at(3, gpu),
        "scale": at(4, gpu), "lda": 2 * INNER, "ldd": INNER, "scale_stride_m": 1, "scale_stride_n": TOKENS * TOP_K,
        "a_type": BF16, "activation": 3, "gate": 1,
    },
    "cast": lambda gpu: {
        "m": TOKENS, "n": K, "a": at(0, gpu), "d": at(3, gpu), "scale": at(4, gpu), "lda": K, "ldd": K, "a_type": BF16,
        "granularity": 2,
    },
    "moe_gate_grad": lambda gpu: {
        "tokens": TOKENS, "top_k": TOP_K, "m": TOKENS * TOP_K, "n": INNER, "z": at(0, gpu), "dh": at(1, gpu),
        "dz": at(3, gpu), "h": at(4, gpu), "sums": at(7, gpu), "places": at(5, gpu), "weights": at(8, gpu),
        "ldz": 2 * INNER, "lddh": INNER, "lddz": 2 * INNER, "ldh": INNER, "a_type": BF16, "weights_type": 2,
        "activation": 3, "gate": 1,
    },
    "moe": lambda gpu: {
        "tokens": TOKENS, "k": K, "inner": INNER, "n": N, "groups": EXPERTS, "top_k": TOP_K, "x": at(0, gpu),
        "b1": at(1, gpu), "b2": at(2, gpu), "d": at(3, gpu), "ids": at(5, gpu), "weights": at(4, gpu), "ldx": K,
        "ldb1": 2 * INNER, "ldb2": N, "ldd": N, "batch_stride_b1": 2 * K * INNER, "batch_stride_b2": INNER * N,
        "a_type": BF16, "weights_type": 3, "activation": 3, "gate": 1, "workspace": at(6, gpu),
        "workspace_bytes": 65536,
    },
}  # fmt: skip


def layer_call(op: str, gpu: int = 0, **changes) -> Arguments:
    return Arguments(op, **{**LAYERS[op](gpu), **changes})


def one_launch(op: str, **changes) -> dict:
    """What a legal call launches, where that is one kernel."""
    before = len(launches())
    ok(layer_call(op, **changes).run())
    (made,) = launches()[before:]
    return made


def scaled_layer(**changes):
    words = {name: at(value) if name in ("b1_scale", "b2_scale") else value for name, value in SCALED.items()}
    made = layer_call("moe", **{**words, **changes})
    return made.set(workspace_bytes=made.workspace())
