"""(Variant) -> Artifact with no GPU and no driver. The only module that drives Triton; writes nothing of its own.

Pointer kernels go through `triton.tools.compile`. Its C launcher is thrown away (it exits the process on error, widens
float scalars to double and knows one device); metadata and cubin come from the compilation listener. What that tool
cannot express (tensor descriptors, clusters) goes through `triton.compile` with the same options: `direct=True`.
"""

import ast
import contextlib
import os
import re
import tempfile
from pathlib import Path

from aot.artifact import Artifact
from aot.elf import CubinError, read_cubin
from aot.params import CompileError, check_params, kernel_function, make_boxes, takes_descriptors
from kernels.spec import ARGUMENTS, DTYPES, TARGETS, Variant

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
WARP_SIZE = 32
SCRATCH_ALIGN = 128  # of a block's share of the workspace: what internal.h gives it

# Triton's knobs that change the code: line info would put this folder's path into the cubin and change the machine
# code; fp fusion's default flips between Triton releases. Read by Triton from the environment at each compilation.
ENVIRONMENT = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
# All else that a compilation sees of the caller's environment. Triton, LLVM and the assembler read dozens of variables
# (TRITON_*, DISABLE_LLVM_OPT, PTXAS_OPTIONS, ...): one left over from debugging would ship under the usual cache key.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH")

# Triton carries two assemblers, and by its own choice takes 12.9's below sm_90, 13.4's from there. Cubins of 12.9's
# load on older drivers. Driver releases a build can be asked to stay loadable on -> assembler; None: Triton's choice.
MIN_DRIVERS = {580: None, 525: "ptxas"}
# The same where nobody asks, by target. Hopper's kernels from 12.9's assembler are as fast (bench/NOTES.md).
DEFAULT_MIN_DRIVERS = {target: 525 if target == 90 else 580 for target in TARGETS}


def assembler(target: int, min_driver: int | None) -> str | None:
    """Which of Triton's assemblers makes a target's cubins: for this driver release, or by default."""
    return MIN_DRIVERS[min_driver or DEFAULT_MIN_DRIVERS[target]]


def source_closure(kernel: str) -> list[Path]:
    """The files whose text decides what `kernel` compiles to: its module and what that imports from kernels/."""
    found, waiting = {}, [f"kernels.{kernel.split('.')[0]}"]
    while waiting:
        module = waiting.pop()
        path = KERNELS / f"{module.split('.')[1]}.py"
        if path in found:
            continue
        found[path] = True
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernels."):
                waiting.append(node.module)
    return sorted(found)


class OfflineDriver:
    """Stands in for Triton's active driver, which triton.tools.compile asks for two things. Touches no device."""

    def __init__(self, target):
        self.get_current_target = lambda: target

    def map_python_to_cpp_type(self, name: str) -> str:
        return name


@contextlib.contextmanager
def known_environment(**more: str):
    """The process's environment is KEPT, ENVIRONMENT and `more` meanwhile."""
    saved = dict(os.environ)
    known = {name: saved[name] for name in KEPT if name in saved} | ENVIRONMENT | more
    try:
        replace_environment(known)
        yield
    finally:
        replace_environment(saved)


def replace_environment(wanted: dict[str, str]) -> None:
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)


def check_import() -> None:
    """Triton reads a few variables once, when it is imported: where that was not here, they must not have been set."""
    from triton import knobs
    from triton.backends.nvidia.compiler import CUDAOptions

    read = {
        "PTXAS_OPTIONS": CUDAOptions.ptx_options,
        "TRITON_DEBUG": knobs.runtime.debug,
        "TRITON_INSTRUMENTATION_MODE": knobs.compilation.instrumentation_mode,
    }
    for name, value in read.items():
        if value:
            raise CompileError(f"{name} = {value!r} when Triton was imported: it would change the code; unset it")


@contextlib.contextmanager
def architecture(name: str):
    """Triton asks for suffix a from 9.0 on, whose code runs on that very capability alone; it has no option for it."""
    from triton.backends.nvidia import compiler

    saved = compiler.sm_arch_from_capability
    compiler.sm_arch_from_capability = lambda capability: name
    try:
        yield
    finally:
        compiler.sm_arch_from_capability = saved


@contextlib.contextmanager
def offline(variant: Variant, min_driver: int | None = None):
    """Environment, cache folder and driver for one compilation, and the listener's record of it."""
    record = {}
    with tempfile.TemporaryDirectory(prefix="libgemm-triton-") as cache, known_environment(TRITON_CACHE_DIR=cache):
        import triton
        from triton.backends.compiler import GPUTarget

        check_import()
        if chosen := assembler(variant.target, min_driver):
            folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
            os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = str(folder / chosen)
        target = GPUTarget("cuda", variant.target, WARP_SIZE)
        triton.runtime.driver.set_active(OfflineDriver(target))
        triton.knobs.compilation.listener = lambda **event: record.update(event)
        try:
            with architecture(variant.architecture):
                yield target, record, cache
        finally:
            triton.knobs.compilation.listener = None


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
    module, function = variant.kernel.split(".")
    compile_kernel(
        CompileArgs(
            path=str(KERNELS / f"{module}.py"),
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
    triton_name = DTYPES[element][0]
    if not of_gluon:
        return f"tensordesc<{triton_name}[{rows},{cols}]>"
    element_type = {"fp16": gl.float16, "bf16": gl.bfloat16, "fp32": gl.float32}[triton_name]
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], element_type)
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
    if variant.config.ctas > 1:
        options["num_ctas"] = variant.config.ctas
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


def compile_variant(variant: Variant, min_driver: int | None = None, direct: bool = False) -> Artifact:
    """Compile one variant, by default for its target's usual driver release (DEFAULT_MIN_DRIVERS). `direct` uses
    triton.compile instead of triton.tools.compile; the bytes are the same."""
    variant.check()
    try:
        with offline(variant, min_driver) as (target, record, cache):
            if direct or is_gluon(kernel_function(variant)) or takes_descriptors(variant):
                run_compile(variant, target)
            else:
                run_tool(variant, cache)
            files = record["metadata_group"]
            cubin, ptx = (
                next(Path(p) for name, p in files.items() if name.endswith(end)) for end in (".cubin", ".ptx")
            )
            return make_artifact(variant, record["metadata"], cubin.read_bytes(), ptx.read_text())
    except (CompileError, CubinError) as error:
        raise CompileError(f"{variant.name}: {error}" if isinstance(error, CubinError) else str(error)) from error
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]  # the compiler points with ^
        text = " | ".join(lines[-3:]) or repr(error)
        raise CompileError(f"{variant.name}: {type(error).__name__}: {text}") from error
