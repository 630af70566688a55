"""Artifacts -> {file name: C text} through jinja2. No logic in the templates, writes nothing; undefined names raise."""

import hashlib
from dataclasses import astuple
from pathlib import Path

import jinja2

from aot.artifact import Artifact
from aot.manifest import blocks_together, canonical, driver_floor, encoded_boxes
from aot.pack import Packed, checksum, compressed
from kernels.table.activations import ACTIVATIONS
from kernels.table.arguments import TENSORS
from kernels.table.dtypes import CAST_TYPES, DTYPES, ELEMENTS, PRECISIONS, TYPES
from kernels.table.model import CONSTANTS, known_of, tuned_name
from kernels.table.spec import HELPERS, LAYOUTS, OPS, Variant
from kernels.table.targets import INTEGRATED, TARGETS

TEMPLATES = Path(__file__).parent / "templates"

ALL_OPS = OPS + HELPERS  # the C enum op
ALL_TYPES = TYPES + CAST_TYPES  # of C's type_index
MOST_ROWS = 576  # of one problem; select/cost.c keeps an estimate of each. Room for all that tuning compares

Row = tuple[Variant, Artifact]


class RenderError(ValueError):
    """The artifacts cannot be rendered together: says which and why."""


def environment(templates: Path = TEMPLATES) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def bucket(variant: Variant) -> int:
    """Index of the C side's bucket: operation, types, layout."""
    p = variant.problem
    types = ALL_TYPES.index((p.a, p.d, p.precision))
    return (ALL_OPS.index(p.op) * len(ALL_TYPES) + types) * len(LAYOUTS) + LAYOUTS.index(p.layout)


def in_table_order(rows: list[Row]) -> list[Row]:
    """By target, then bucket; rows of one bucket keep their order."""
    return sorted(rows, key=lambda row: (row[0].target, bucket(row[0])))


def launcher_name(signature: str) -> str:
    return "launch_" + signature.replace(".", "_")


def value_of(name: str) -> str:
    """Where a launcher has a parameter: in struct call of launch/call.h."""
    argument, _, field = name.partition(".")
    if not field:
        return f"call->{name}"
    return f"*call->{argument}" if field == "map" else "call->no_size" if "shape" in field else "call->no_stride"


def launch_signatures(artifacts: list[Artifact]) -> dict[str, Artifact]:
    """signature -> an artifact that has it; all of them must have the same parameters."""
    found: dict[str, Artifact] = {}
    for artifact in artifacts:
        first = found.setdefault(artifact.signature, artifact)
        if first.params != artifact.params:
            raise RenderError(
                f"{artifact.variant} takes {artifact.params}, {first.variant} of the same kernel {first.params}"
            )
    return found


def bucket_starts(variants: list[Variant], first_row: int) -> list[int]:
    """Where each bucket of one target starts in the table, and, last, where the target ends."""
    count = len(ALL_OPS) * len(ALL_TYPES) * len(LAYOUTS)
    sizes = [0] * count
    for variant in variants:
        sizes[bucket(variant)] += 1
    if max(sizes) > MOST_ROWS:
        raise RenderError(f"{max(sizes)} rows compute one problem: select/rows.c weighs {MOST_ROWS}")
    starts = [first_row]
    for size in sizes:
        starts.append(starts[-1] + size)
    return starts


def known_shapes(target: int, variants: list[Variant]) -> list[dict]:
    """Shapes whose winner was measured, where it is among these variants. Sorted: select/rows.c halves its way."""
    symbols = {v.fit_name: fit_symbol(v) for v in variants if v.fit and v.measured_as in OPS}
    shapes = [
        {"m": m, "n": n, "k": k, "count": count, "layout": LAYOUTS.index(layout), "fit": symbols[tile]}
        for op in OPS
        for m, n, k, count, layout, tile in known_of(target, op)
        if tile in symbols
    ]
    return sorted(shapes, key=lambda shape: [shape[name] for name in ("m", "n", "k", "count", "layout")])


def check_adders(variants: list[Variant]) -> None:
    """What shares all tiles has what adds up behind it: api/gemm.c takes the first such row of its types."""
    adders = {(v.problem.a, v.problem.d, v.problem.precision) for v in variants if v.problem.op == "gemm_sum"}
    for v in variants:
        if v.family.split == "stream" and (v.problem.a, v.problem.d, v.problem.precision) not in adders:
            raise RenderError(f"{v.name} leaves sums that no row of gemm_sum adds up")


def target_tables(rows: list[Row]) -> list[dict]:
    tables, first = [], 0
    for number in sorted({variant.target for variant, _ in rows}):
        own = [row for row in rows if row[0].target == number]
        check_adders([variant for variant, _ in own])
        min_cuda, min_driver = driver_floor([artifact for _, artifact in own])
        tables.append(
            {
                "target": number,
                "min_cuda": min_cuda,
                "min_driver": min_driver,
                "rows": len(own),
                "portable": TARGETS[number].portable,
                "known": known_shapes(number, [variant for variant, _ in own]),
                "buckets": bucket_starts([variant for variant, _ in own], first),
            }
        )
        first += len(own)
    return tables


def pair_of(variant: Variant, artifact: Artifact) -> str:
    """Which of C's enum pair a row for 8-bit operands is for."""
    if any(p.name == "a_type" for p in artifact.params):
        return "TOLD"
    return f"E5M2_{(variant.problem.e5m2 or 'none').upper()}"


def fit_symbol(variant: Variant) -> str:
    return f"fit_{tuned_name(variant.target, variant.measured_as)}_{variant.fit_name}"


def in_fours(weights: tuple[float, ...]) -> list[float]:
    """A layout's weights as select/cost.c takes them, four at a time: of m, n, k and the constant; of the twelve
    logarithms that a row has of its own; of products of each of these with itself, then with the one behind it, around,
    and so on, up to six behind, where the first eight are all (the last logarithm stands in no product); of strides."""
    constant, logs, products, strides = weights[0], weights[1:16], weights[16:82], weights[82:]
    pairs = [(i, j) for i in range(11) for j in range(i, 11)]
    found = dict(zip(pairs, products, strict=True))
    around = [(i, (i + behind) % 12) for behind in range(7) for i in range(12 if behind < 6 else 8)]
    turned = [found.pop((min(pair), max(pair)), 0.0) for pair in around]
    return list(map(float, [*logs[12:], constant, *logs[:12], *turned, *strides]))


def fit_tables(variants: list[Variant]) -> list[dict]:
    """The weights of every tile and family that was measured, once each."""
    found = {fit_symbol(v): v.fit for v in variants if v.fit}
    return [{"name": name, "weights": [in_fours(row) for row in fit.weights]} for name, fit in found.items()]


def type_table() -> list[list[list[int]]]:
    """type_index[a][d][precision] by the C enums' values; -1 where there is no such combination."""
    types = 1 + max(d.c_enum for d in ELEMENTS.values())
    table = [[[-1] * (1 + max(PRECISIONS.values())) for _ in range(types)] for _ in range(types)]
    for index, (a, d, precision) in enumerate(ALL_TYPES):
        table[DTYPES[a].c_enum][ELEMENTS[d].c_enum][PRECISIONS[precision]] = index
    return table


def c_name(variant: Variant, artifact: Artifact) -> str:
    """A row's name as C text: the end of its own entry symbol, so that it stands in the library once."""
    if artifact.entry != variant.symbol:  # another target's code
        return f'"{variant.name}"'
    return f'&"{artifact.entry}"[{len(artifact.entry) - len(variant.name)}]'


def render_shortlists(printed: str = "", templates: Path = TEMPLATES) -> str:
    """C text of what the program aot/shortlist.c printed; of nothing, that all rows are weighed."""
    lists, buckets = {}, []
    for line in printed.splitlines():
        first, *words = line.split()
        same = words[0] == "as"
        buckets.append((int(first), int(words[1]) if same else int(first)))
        if not same:
            lists[int(first)] = words
    return environment(templates).get_template("shortlists.c.j2").render(lists=lists, buckets=sorted(buckets))


def render(rows: list[Row], packed: Packed, manifest: dict, templates: Path = TEMPLATES) -> dict[str, str | bytes]:
    """All generated files: C text, and the two blobs the assembler includes under names that hold their hash."""
    env = environment(templates)
    rows = in_table_order(rows)
    signatures = launch_signatures([artifact for _, artifact in rows])
    document = canonical(manifest)
    blobs = {"cubins": packed.blob, "manifest": compressed(document)}
    names = {kind: f"{kind}-{hashlib.sha256(data).hexdigest()[:16]}.bin" for kind, data in blobs.items()}
    files: dict[str, str | bytes] = {names[kind]: data for kind, data in blobs.items()}
    for signature, first in signatures.items():
        launcher = launcher_name(signature)
        values = [{"name": p.name, "size": p.size, "value": value_of(p.name)} for p in first.params]
        text = env.get_template("launcher.c.j2").render(kernel=first.kernel, launcher=launcher, params=values)
        files[f"{launcher}.c"] = text
    files["table.c"] = env.get_template("table.c.j2").render(
        rows=[
            {"variant": v, "artifact": a, "name": c_name(v, a), "launcher": launcher_name(a.signature),
             "checksum": checksum(a.cubin), "place": packed.places[v.name],
             "op": ALL_OPS.index(v.problem.op), "a_type": DTYPES[v.problem.a].c_enum,
             "d_type": ELEMENTS[v.problem.d].c_enum,
             "precision": PRECISIONS[v.problem.precision], "layout": LAYOUTS.index(v.problem.layout),
             "pair": pair_of(v, a),
             "boxes": encoded_boxes(v, a), "parts": sum(box.name.startswith("c_") for box in a.boxes),
             "ctas": blocks_together(v, a),
             "share_a": v.config.below if v.family.swap_ab else v.config.across,
             "share_b": v.config.across if v.family.swap_ab else v.config.below,
             "swap": v.family.swap_ab, "stream_k": v.family.split == "stream",
             "fit": f"&{fit_symbol(v)}" if v.fit else "NULL", "model": [float(number) for number in astuple(v.model)]}
            for v, a in rows
        ],
        tensors=TENSORS,
        launchers=[launcher_name(signature) for signature in signatures],
        targets=target_tables(rows),
        buildables=[
            {"target": number, "multiprocessors": target.multiprocessors, "shared_bytes": target.shared_bytes,
             "portable": target.portable, "integrated": number in INTEGRATED}
            for number, target in TARGETS.items()
        ],
        chunks=packed.chunks,
        types=type_table(),
        precisions=PRECISIONS,
        type_count=len(ALL_TYPES),
        **CONSTANTS,
        fits=fit_tables([variant for variant, _ in rows]),
        build_id=manifest["build_id"],
    )  # fmt: skip
    files["types.h"] = env.get_template("types.h.j2").render(
        dtypes=ELEMENTS.values(), dtype_limit=1 + max(d.c_enum for d in ELEMENTS.values()),
        precision_limit=1 + max(PRECISIONS.values()), activation_count=len(ACTIVATIONS), most_rows=MOST_ROWS,
    )  # fmt: skip
    files["shortlists.c"] = render_shortlists(templates=templates)
    files["blobs.c"] = env.get_template("blobs.c.j2").render(
        files=names, manifest_bytes=len(document), packed_bytes=len(blobs["manifest"])
    )
    return files
