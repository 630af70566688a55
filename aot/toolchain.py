"""The known state in which Triton compiles: environment, assembler, architecture, entry symbol, and no GPU driver."""

import contextlib
import functools
import os
import tempfile
from operator import attrgetter
from pathlib import Path

from aot.params import CompileError
from kernels.table.spec import TARGETS, Variant

WARP_SIZE = 32
PACKED_FLOATS = 100  # the first target with instructions on pairs of float32 (PTX ISA, fma.f32x2)

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
def replaced(owner, name: str, value):
    """An attribute of Triton's is `value` meanwhile: for what it has no option for."""
    saved = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, saved)


def architecture(name: str):
    """Triton asks for suffix a from 9.0 on, whose code runs on that very capability alone."""
    from triton.backends.nvidia import compiler

    return replaced(compiler, "sm_arch_from_capability", lambda capability: name)


def entry_symbol(name: str):
    """Triton calls a kernel's entry point after its function, one name for hundreds of variants."""
    from triton.runtime.jit import JITFunction

    return replaced(JITFunction, "repr", lambda function, _: name)


@contextlib.contextmanager
def synchronized_as_written():
    """Without the passes that add a fence where shared memory is written, then read by TMA or the tensor cores, and a
    barrier where one warp needs what another has read or written there. They follow memory byte by byte, a quarter of a
    compilation. Kernels in Gluon say where both are (fence_async_shared, gl.barrier): the passes add none, and
    tests/aot/test_synchronized.py compares the bytes. Where warpgroups run one code they must not run: barriers there
    are assembly (kernels/device/sm90/team.py), of which they know nothing, and what they add is for all threads."""
    from triton.backends.nvidia import compiler

    passes = compiler.nvidia.passes
    fences = replaced(passes.ttnvgpuir, "add_proxy_fence_insertion", lambda manager, capability: None)
    with fences, replaced(passes.ttgpuir, "add_membar", lambda manager, capability, ptx_version: None):
        yield


# Kernels in Gluon are all Hopper's. In them these passes of Triton's find nothing to do: they are for tensor memory,
# clusters whose warps part by Triton's own means, and a choice between tensors behind an `if`.
IDLE = {
    "nvidia.passes.ttnvgpuir": (
        "add_allocate_tensor_memory", "add_tmem_barrier_insertion", "add_tmem_wait_insertion",
        "add_cluster_barrier_mbar_allocator", "add_initialize_ws_cluster_barriers",
    ),
    "passes.ttgpuir": ("add_combine_tensor_select_and_if",),
}  # fmt: skip


# The same of kernels in Triton's own language before Blackwell, which are for one block each and name no descriptor.
IDLE_BEFORE_TENSOR_MEMORY = {
    "nvidia.passes.ttnvgpuir": (
        "add_assign_cga_layouts", "add_optimize_cta_locality", "add_check_matmul_two_cta",
        "add_optimize_descriptor_encoding", "add_optimize_tmem_layouts", "add_tmem_load_reduce", "add_interleave_tmem",
        "add_hoist_mbarrier_lifecycle", "add_allocate_tensor_memory", "add_tmem_barrier_insertion",
        "add_tmem_wait_insertion", "add_cluster_barrier_mbar_allocator", "add_initialize_ws_cluster_barriers",
    ),
    "nvidia.passes.hopper": ("add_hopper_warpspec",),
}  # fmt: skip
TENSOR_MEMORY = 100  # the first target with it


@contextlib.contextmanager
def without(idle: dict[str, tuple[str, ...]]):
    """Without these passes: no byte changes (tests/aot/test_synchronized.py, test_idle.py)."""
    from triton.backends.nvidia import compiler

    with contextlib.ExitStack() as left_out:
        for module, names in idle.items():
            for name in names:
                left_out.enter_context(replaced(attrgetter(module)(compiler), name, lambda *_: None))
        yield


def without_idle_tensor_passes(variant: Variant):
    """Of a kernel in Triton's own language: a fifteenth of what comes before the assembler."""
    return without(IDLE_BEFORE_TENSOR_MEMORY if variant.target < TENSOR_MEMORY else {})


@contextlib.contextmanager
def without_idle_passes():
    """Without IDLE, and by Triton's inliner in place of Gluon's, which simplifies functions once more: a tenth of what
    comes before the assembler. No byte changes (tests/aot/test_synchronized.py)."""
    from triton.backends.nvidia import compiler

    with without(IDLE), replaced(compiler.passes.gluon, "add_inliner", compiler.passes.common.add_inliner):
        yield


@functools.cache
def kept_files() -> type:
    """Triton's store of what it makes, in a folder that nobody else has and that is gone afterwards: without the texts
    that nobody here reads, whose printing is a fortieth of a compilation, and without copies to rename."""
    from triton.runtime.cache import FileCacheManager

    class KeptFiles(FileCacheManager):
        def put(self, data, filename: str, binary: bool = True) -> str:
            if not filename.endswith((".cubin", ".ptx", ".json")):
                return os.devnull  # a record of a compilation reads all its files
            path = Path(self._make_path(filename))
            path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
            return str(path)

        def get_group(self, filename: str) -> dict | None:
            return None

        def put_group(self, filename: str, group: dict) -> str:
            return os.devnull

    return KeptFiles


def scalars_as_written(variant: Variant):
    """Without LLVM's SLP vectorizer, half of its optimizer's time, where the machine has no instructions on pairs of
    float32: their vectors are taken apart again, by more instructions than there were (bench/NOTES.md). With it in what
    is no dense or packed product: threads that gather rows find their addresses by fewer instructions so."""
    from triton.backends.nvidia import compiler

    optimize = compiler.llvm.optimize_module

    def optimize_scalars(*words, **names):
        return optimize(*words, **{**names, "disable_slp_vectorizer": True})

    without = variant.target < PACKED_FLOATS and variant.problem.op in ("gemm", "grouped_mm")
    return replaced(compiler.llvm, "optimize_module", optimize_scalars if without else optimize)


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
            files = replaced(triton.knobs.cache, "manager_class", kept_files())
            with architecture(variant.architecture), entry_symbol(variant.symbol), scalars_as_written(variant), files:
                yield target, record, cache
        finally:
            triton.knobs.compilation.listener = None
