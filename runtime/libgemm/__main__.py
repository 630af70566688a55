"""python -m libgemm: what a deployer runs in his image. `info` and `verify` need no GPU."""

import argparse
import json
import sys

import libgemm


def show_info(_) -> int:
    facts = libgemm.info()
    print(f"libgemm {facts['version']}, ABI {facts['abi']}, build {facts['build_id']}")
    for target, t in facts["targets"].items():
        print(f"  sm_{target}: {t['variants']} variants, NVIDIA driver {t['min_driver']} or newer")
    return 0


def show_variants(options) -> int:
    for v in libgemm.variants():
        if options.target in (None, v.target):
            print(f"{v.name}  {v.registers} registers, {v.shared_bytes} B shared, {v.cubin_bytes} B")
    return 0


def show_manifest(_) -> int:
    json.dump(libgemm.manifest(), sys.stdout, indent=1)
    print()
    return 0


def verify(_) -> int:
    damaged = libgemm.verify()
    for name in damaged:
        print(f"damaged: {name}")
    print(f"{libgemm.info()['variants']} variants, {len(damaged)} damaged")
    return bool(damaged)


def explain(options) -> int:
    sizes = [options.m, options.n, options.k]
    words = {name: getattr(options, name) for name in ("dtype", "layout", "precision", "activation")}
    words["target"] = options.target or 0
    if options.groups is None:
        variant, reason = libgemm.explain(*sizes, **words)
    else:
        variant, reason = libgemm.explain_grouped_mm(*sizes, options.groups, **words, ragged=options.ragged)
    print(f"{variant.name if variant else '-'}\n{reason}")
    return 0


def parse(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m libgemm", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("info", help="version, build id, targets and the driver each needs").set_defaults(run=show_info)
    commands.add_parser("manifest", help="the library's manifest as JSON").set_defaults(run=show_manifest)
    commands.add_parser("verify", help="compare every kernel with its recorded sha256").set_defaults(run=verify)
    listing = commands.add_parser("variants", help="every variant")
    listing.add_argument("--target", type=int, help="compute capability * 10, such as 90")
    listing.set_defaults(run=show_variants)
    choice = commands.add_parser("explain", help="which variant a dense GEMM gets, or packed groups, and why")
    for name in ("m", "n", "k"):
        choice.add_argument(name, type=int)
    choice.add_argument("--dtype", default="bf16")
    choice.add_argument("--layout", default="nt")
    choice.add_argument("--precision")
    choice.add_argument("--activation")
    choice.add_argument("--groups", type=int, help="packed groups, as grouped_mm takes them")
    choice.add_argument("--ragged", default="m", help="what the ends of groups cut: m, n, k or none")
    choice.add_argument("--target", type=int, help="compute capability * 10; without it, the current GPU")
    choice.set_defaults(run=explain)
    return parser.parse_args(arguments)


def main(arguments=None) -> int:
    options = parse(arguments)
    try:
        return options.run(options)
    except libgemm.Error as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
