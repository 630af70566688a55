"""Checks for deployers, and what would run. Only `explain` without --target needs a GPU."""

import argparse
import dataclasses
import json
import signal
import sys
from typing import Any

import libgemm
from libgemm._library import invalid

EXPLAIN = """\
M, N, K are the sizes of D [M,N] = A [M,K] B [K,N]. With --groups they are those of grouped_mm: the size that the
ends of groups cut is that of all groups together, the others are those of one group. Operands are taken to lie
without gaps, on multiples of 16 bytes.

  python -m libgemm explain 4096 14336 4096 --dtype bf16 --layout nt --target {target}
  python -m libgemm explain 32768 4096 7168 --groups 8 --ragged m --target {target}
"""


LATER = {80: "8.6 and 8.9", 86: "8.9", 100: "later 10.x", 120: "later 12.x"}  # what else runs a target's code


def show(options: argparse.Namespace, facts: Any, lines: list[str]) -> None:
    """Either the facts as JSON or the lines, as the caller asked."""
    print(json.dumps(facts, indent=1) if options.json else "\n".join(lines))


def here() -> dict[str, Any]:
    """Whether the current driver and GPU are served, by kernels of which target, or the sentence that says why not."""
    try:
        choice = libgemm.explain(16, 16, 16)
    except libgemm.Error as error:
        return {"served": False, "target": None, "error": str(error)}
    return {"served": True, "target": choice.variant and choice.variant.target, "error": None}


def show_info(options: argparse.Namespace) -> int:
    facts, machine = libgemm.info(), here()
    lines = [f"libgemm {facts['version']}, ABI {facts['abi']}, build {facts['build_id']}"]
    for target, t in facts["targets"].items():
        later = f", also for {LATER[target]}" if t["portable"] and target in LATER else ""
        lines.append(f"  sm_{target}: {t['variants']} variants, NVIDIA driver {t['min_driver']} or newer{later}")
    served = f"driver and GPU are served by the kernels for sm_{machine['target']}"
    lines.append(f"here: {served if machine['served'] else machine['error']}")
    show(options, {**facts, "here": machine}, lines)
    return int(options.check and not machine["served"])


def show_variants(options: argparse.Namespace) -> int:
    targets = list(libgemm.info()["targets"])
    if options.target not in (None, *targets):
        raise invalid(f"target = {options.target}: this library has {', '.join(map(str, targets))}")
    found = [v for v in libgemm.variants() if options.target in (None, v.target)]
    lines = [f"{v.name}  {v.registers} registers, {v.shared_bytes} B shared, {v.cubin_bytes} B" for v in found]
    show(options, [dataclasses.asdict(v) for v in found], lines)
    return 0


def show_manifest(_: argparse.Namespace) -> int:
    print(json.dumps(libgemm.manifest(), indent=1))
    return 0


def verify(options: argparse.Namespace) -> int:
    damaged = libgemm.verify()
    count = libgemm.info()["variants"]
    lines = [*(f"damaged: {name}" for name in damaged), f"{count} variants, {len(damaged)} damaged"]
    show(options, {"variants": count, "damaged": damaged}, lines)
    return bool(damaged)


def explain(options: argparse.Namespace) -> int:
    words: dict[str, Any] = {
        name: getattr(options, name)
        for name in (
            "dtype", "b_dtype", "out_dtype", "layout", "precision", "activation", "scaling", "batch_invariant", "target"
        )
    }  # fmt: skip
    words["aligned"] = not options.unaligned
    if options.groups is None:
        if options.ragged is not None:
            raise invalid(f"--ragged {options.ragged} without --groups: how many groups, is needed")
        choice = libgemm.explain(options.m, options.n, options.k, batch=options.batch, **words)
    else:
        if options.batch != 1:
            raise invalid(f"--batch {options.batch} with --groups: groups of equal size are --ragged none")
        words["ragged"] = options.ragged or "m"
        choice = libgemm.explain_grouped_mm(options.m, options.n, options.k, options.groups, **words)
    name = choice.variant.name if choice.variant else None
    facts = {"variant": name, "reason": choice.reason, "expected_us": choice.expected_us, "covered": choice.covered}
    show(options, facts, [name or "-", choice.reason])
    return 0


def target_number(word: str) -> int:
    """90 of 90, 9.0, sm_90, 90a or sm_90a."""
    number = word.removeprefix("sm_").rstrip("af").replace(".", "")
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{word!r}: compute capability * 10 is needed, such as 90")
    return int(number)


def add_explain(commands: Any, json_option: argparse.ArgumentParser) -> None:
    targets = list(libgemm.info()["targets"])
    examples = EXPLAIN.format(target=90 if 90 in targets else targets[-1])
    choice = commands.add_parser(
        "explain", help="which variant a dense GEMM gets, or packed groups, and why", parents=[json_option],
        epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for name, words in (("m", "rows of A and D"), ("n", "columns of B and D"), ("k", "columns of A, rows of B")):
        choice.add_argument(name, type=int, metavar=name.upper(), help=words)
    choice.add_argument(
        "--dtype", default="bf16", help="of A and B: bf16 (default), f16, f32, e4m3 or e5m2; D's is the same, of 8-bit "
        "ones bf16",
    )  # fmt: skip
    choice.add_argument("--b-dtype", help="of B alone, with e4m3 or e5m2 the other one")
    choice.add_argument("--out-dtype", help="of D, where it is another one")
    choice.add_argument(
        "--layout", default="nt", help="how A and B are stored, a letter each: n as [M,K] and [K,N], t transposed; "
        "nn, nt (default), tn or tt",
    )  # fmt: skip
    choice.add_argument("--precision", help="of f32, which needs one: tf32, tf32x3 or ieee; of 8 bits: exact or fast")
    choice.add_argument("--scaling", help="of 8-bit ones: tensor, row, 1x128_128x128, 1x128_1x128 or 128x128_1x128")
    choice.add_argument("--activation", help="relu, gelu or silu (default: none)")
    choice.add_argument("--batch", type=int, default=1, help="this many products of that size")
    choice.add_argument("--groups", type=int, help="this many packed groups, as grouped_mm takes them")
    choice.add_argument("--ragged", help="with --groups, what their ends cut: m (default), n, k or none")
    choice.add_argument("--batch-invariant", action="store_true", help="a row's bits may depend on no other row")
    choice.add_argument("--unaligned", action="store_true", help="operands begin on no multiple of 16 bytes")
    choice.add_argument("--target", type=target_number, default=0, help="compute capability * 10, such as "
                        f"{', '.join(map(str, targets))} (default: the current GPU)")  # fmt: skip
    choice.set_defaults(run=explain)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m libgemm", description=__doc__)
    build = libgemm.info()["build_id"][:16]
    parser.add_argument("--version", action="version", version=f"libgemm {libgemm.__version__}, build {build}")
    commands = parser.add_subparsers(required=True, metavar="command")
    json_option = argparse.ArgumentParser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="print JSON")
    for name, run, words in (
        ("info", show_info, "version, build id, targets and the driver each needs; whether this machine is served"),
        ("variants", show_variants, "every variant"),
        ("verify", verify, "compare every kernel, and the library's file, with its recorded sha256"),
    ):
        commands.add_parser(name, help=words, parents=[json_option]).set_defaults(run=run)
    commands.choices["info"].add_argument(
        "--check", action="store_true", help="exit status 1 where nothing here is served"
    )
    commands.choices["variants"].add_argument(
        "--target", type=target_number, help="compute capability * 10, such as 90"
    )
    commands.add_parser("manifest", help="the library's manifest as JSON").set_defaults(run=show_manifest)
    add_explain(commands, json_option)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return int(options.run(options))
    except libgemm.Error as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has read enough ends us without a word
    sys.exit(main())
