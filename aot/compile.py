"""(Variant) -> Artifact with no GPU and no driver. The only module that drives Triton; writes nothing of its own.

Pointer kernels go through `triton.tools.compile`. Its C launcher is thrown away (it exits the process on error, widens
float scalars to double and knows one device); metadata and cubin come from the compilation listener. What that tool
cannot express (tensor descriptors, clusters) goes through `triton.compile` with the same options: `direct=True`.
"""

import ast
import contextlib
import re
from pathlib import Path

from aot.artifact import Artifact
from aot.elf import CubinError, read_cubin
from aot.params import CompileError, check_params, kernel_function, make_boxes, takes_descriptors
from aot.retype import retype, retype_metadata, told_by
from aot.toolchain import (
    WARP_SIZE,
    offline,
    synchronized_as_written,
    without_idle_passes,
    without_idle_tensor_passes,
)
from kernels.table.arguments import ARGUMENTS
from kernels.table.dtypes import DTYPES
from kernels.table.spec import TARGETS, Variant

DEVICE = Path(__file__).resolve().parent.parent / "kernels" / "device"
PACKAGE = "kernels.device."
SCRATCH_ALIGN = 128  # of a block's share of the workspace: what internal.h gives it


def source_closure(kernel: str) -> list[Path]:
    """The files whose text decides what `kernel` compiles to: its module and what that imports of kernels/device."""
    found, waiting = {}, [kernel.rsplit(".", 1)[0]]
    while waiting:
        path = DEVICE / f"{waiting.pop().replace('.', '/')}.py"
        if path in found:
            continue
        found[path] = True
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                waiting.append(node.module.removeprefix(PACKAGE))
    return sorted(found)


def run_tool(variant: Variant, cache: str) -> None:
    """triton.tools.compile, as its command line would run it."""
    from triton.tools.compile import CompileArgs, compile_kernel

    constexprs = variant.constexprs()
    words = []
    for name in kernel_function(variant).arg_names:
        if name in constexprs:
            words.append(str(constexprs[name]))
        else:
            words.append(variant.argument_type(name) + (":16" if variant.divisible(name) else ""))
    module, function = variant.kernel.rsplit(".", 1)
    compile_kernel(
        CompileArgs(
            path=str(DEVICE / f"{module.replace('.', '/')}.py"),
            kernel_name=function,
            signature=", ".join(words),
            grid="1,1,1",
            target=f"cuda:{variant.target}:{WARP_SIZE}",
            num_warps=variant.config.warps,
            num_stages=variant.config.stages,
            out_name="unused",
            out_path=Path(cache) / "unused",
        )
    )


def descriptor_type(variant: Variant, name: str, of_gluon: bool) -> str:
    """A tensor descriptor's type in a signature. Gluon names its shared-memory layout, which follows from box and
    element; Triton chooses one itself."""
    from triton.experimental.gluon import language as gl

    element, rows, cols = variant.box(name)
    triton_name = DTYPES[element].triton
    if not of_gluon:
        return f"tensordesc<{triton_name}[{rows},{cols}]>"
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], gl.dtype(triton_name))
    return f"tensordesc<{triton_name}[{rows},{cols}],{layout!r}>"


def is_gluon(kernel) -> bool:
    from triton.experimental.gluon import GluonJITFunction

    return isinstance(kernel, GluonJITFunction)


def run_compile(variant: Variant, target) -> None:
    """triton.compile with the same source, constants and options as run_tool; also for Gluon and descriptors."""
    import triton
    from triton.compiler import ASTSource
    from triton.experimental.gluon import GluonASTSource

    kernel = kernel_function(variant)
    source = GluonASTSource if is_gluon(kernel) else ASTSource
    constexprs = {n: v for n, v in variant.constexprs().items() if n in kernel.arg_names}
    signature = {}
    for name in kernel.arg_names:
        if name in constexprs:
            signature[name] = "constexpr"
        elif ARGUMENTS[name] == "desc":
            signature[name] = descriptor_type(variant, name, is_gluon(kernel))
        else:
            signature[name] = variant.argument_type(name)
    attrs = {
        (i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names)
        if name not in constexprs and variant.divisible(name)
    }  # fmt: skip
    options = {"num_warps": variant.config.warps, "num_stages": variant.config.stages}
    if variant.family.registers:
        options["maxnreg"] = variant.family.registers
    # Where descriptors are made on the device the compiler writes shared memory of its own, for which nobody can.
    as_written = is_gluon(kernel) and "scratch" not in variant.guard
    with contextlib.ExitStack() as passes:
        if as_written:
            passes.enter_context(synchronized_as_written())
            passes.enter_context(without_idle_passes())
        triton.compile(source(kernel, signature, constexprs, attrs), target=target, options=options)


def make_artifact(variant: Variant, metadata: dict, cubin: bytes, ptx: str) -> Artifact:
    """Join compiled metadata and the cubin's headers; refuse what the C launcher could not honour."""
    facts = read_cubin(cubin)
    threads = metadata["num_warps"] * WARP_SIZE
    problems = []
    if facts.target != variant.target:
        problems.append(f"cubin is for sm_{facts.target}")
    architecture = re.search(r"^\.target (\w+)", ptx, re.M)[1]
    if architecture != variant.architecture:
        problems.append(f"PTX is for {architecture}, {variant.architecture} was asked for")
    if facts.kernel != metadata["name"]:
        problems.append(f"cubin holds {facts.kernel}, metadata says {metadata['name']}")
    if facts.threads not in (None, threads):
        problems.append(f"cubin requires {facts.threads} threads, metadata says {threads}")
    limit = TARGETS[variant.target].shared_bytes
    if metadata["shared"] > limit:
        problems.append(f"needs {metadata['shared']} bytes of shared memory, sm_{variant.target} has {limit}")
    scratch = metadata.get("global_scratch_size") or 0
    if bool(scratch) != ("scratch" in variant.guard):
        problems.append(f"needs global_scratch_size = {scratch}, its guard says {'more' if not scratch else 'none'}")
    if scratch % SCRATCH_ALIGN:
        problems.append(
            f"needs global_scratch_size = {scratch}, no multiple of {SCRATCH_ALIGN}: the next block's is not aligned"
        )
    if metadata.get("global_scratch_align", 1) > SCRATCH_ALIGN:
        problems.append(
            f"needs its scratch memory aligned to {metadata['global_scratch_align']} bytes, has {SCRATCH_ALIGN}"
        )
    if metadata.get("profile_scratch_size"):
        problems.append(f"needs profile_scratch_size = {metadata['profile_scratch_size']}, which nobody provides")
    if problems:
        raise CompileError(f"{variant.name}: {'; '.join(problems)}")
    return Artifact(
        variant=variant.name,
        target=variant.target,
        kernel=variant.kernel,
        entry=facts.kernel,
        params=check_params(variant, facts),
        warps=metadata["num_warps"],
        ctas=metadata["num_ctas"],
        shared_bytes=metadata["shared"],
        registers=facts.registers,
        local_bytes=facts.local_bytes,
        scratch_bytes=scratch,
        overlaps="griddepcontrol.wait" in ptx,
        architecture=architecture,
        toolkit=facts.toolkit,
        boxes=make_boxes(variant, metadata),
        cubin=cubin,
    )


def run_triton(variant: Variant, target, record: dict, cache: str, direct: bool) -> tuple[dict, bytes, str]:
    """What Triton makes of one variant: metadata, cubin and PTX."""
    of_gluon = is_gluon(kernel_function(variant))
    with contextlib.nullcontext() if of_gluon else without_idle_tensor_passes(variant):
        if direct or of_gluon or takes_descriptors(variant):
            run_compile(variant, target)
        else:
            run_tool(variant, cache)
    files = record["metadata_group"]
    cubin, ptx = (next(Path(p) for name, p in files.items() if name.endswith(end)) for end in (".cubin", ".ptx"))
    return record["metadata"], cubin.read_bytes(), ptx.read_text()


def assemble(ptx: str, variant: Variant, target) -> bytes:
    """The cubin of a PTX text: Triton's last stage by itself."""
    from triton.compiler.compiler import Language, make_backend

    backend, stages = make_backend(target), {}
    options = backend.parse_options({"num_warps": variant.config.warps, "num_stages": variant.config.stages})
    backend.add_stages(stages, options, Language.TRITON)
    return stages["cubin"](ptx, {})


@contextlib.contextmanager
def named(variant: Variant):
    """Whatever stops the compiler is one line with the variant's name."""
    try:
        yield
    except (CompileError, CubinError) as error:
        raise CompileError(f"{variant.name}: {error}" if isinstance(error, CubinError) else str(error)) from error
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]  # the compiler points with ^
        text = " | ".join(lines[-3:]) or repr(error)
        raise CompileError(f"{variant.name}: {type(error).__name__}: {text}") from error


def compile_variant(variant: Variant, min_driver: int | None = None, direct: bool = False) -> Artifact:
    """Compile one variant, by default for its target's usual driver release (DEFAULT_MIN_DRIVERS). `direct` uses
    triton.compile instead of triton.tools.compile; the bytes are the same."""
    if base := told_by(variant):
        return compile_twins(base, (variant,), min_driver)[1]
    variant.check()
    with named(variant), offline(variant, min_driver) as (target, record, cache):
        return make_artifact(variant, *run_triton(variant, target, record, cache, direct))


def compile_twins(variant: Variant, twins: tuple[Variant, ...], min_driver: int | None = None) -> list[Artifact]:
    """Compile a variant and its twins (retype.py), whose PTX is not made again where the variant's tells it. The bytes
    are those of compile_variant."""
    variant.check()
    with named(variant), offline(variant, min_driver) as (target, record, cache):
        metadata, cubin, ptx = run_triton(variant, target, record, cache, False)
        made = [make_artifact(variant, metadata, cubin, ptx)]
        texts = [retype(ptx, variant, twin) for twin in twins]
    for twin, text in zip(twins, texts, strict=True):
        with named(twin), offline(twin, min_driver) as (target, _, _):
            twin.check()
            if text:
                made.append(make_artifact(twin, retype_metadata(metadata, twin), assemble(text, twin, target), text))
            elif told_by(twin) == variant:
                raise CompileError(f"{twin.name}: what its PTX says of 8-bit types is not all in its products")
    left = [compile_variant(twin, min_driver) for twin, text in zip(twins, texts, strict=True) if not text]
    by_name = {artifact.variant: artifact for artifact in (*made, *left)}
    return [by_name[v.name] for v in (variant, *twins)]


def compile_unit(unit: tuple[Variant, ...], min_driver: int | None = None) -> list[Artifact]:
    """What one worker does at a time: a variant, or one and its twins, or twins of one that nobody asked for."""
    variant, *twins = unit
    if base := told_by(variant):
        return compile_twins(base, unit, min_driver)[1:]
    return compile_twins(variant, tuple(twins), min_driver) if twins else [compile_variant(variant, min_driver)]
