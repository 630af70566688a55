"""What a process of its own does with CUDA contexts: `python tests/gpu/contexts.py reset|second|peer`. Prints problems.

A process of its own, since it resets GPUs and must be the first to use one. Memory and contexts come from the driver by
ctypes alone, so that no framework makes a context on the side.
"""

import ctypes
import sys
import threading

from libgemm._library import ffi, lib, text

SIZE = 512
BF16_ONE = 0x3F80
BF16_SIZE = 0x4400  # of 512.0
ONE_OF_SIZE = ctypes.c_size_t(SIZE * SIZE)
driver = ctypes.CDLL("libcuda.so.1")


def use(function: str, *arguments) -> None:
    status = getattr(driver, function)(*arguments)
    if status:
        raise RuntimeError(f"{function}: {status}")


def retained(device: int) -> ctypes.c_void_p:
    context = ctypes.c_void_p()
    use("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


def is_active(device: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    use("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def matrix() -> int:
    """SIZE x SIZE ones in bf16, in the current context."""
    address = ctypes.c_uint64()
    use("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(2 * SIZE * SIZE))
    use("cuMemsetD16_v2", address, ctypes.c_ushort(BF16_ONE), ONE_OF_SIZE)
    return address.value


def arguments(a: int, b: int, d: int):
    args = ffi.new("libgemm_gemm_args *")
    lib.libgemm_gemm_args_init(args, ffi.sizeof("libgemm_gemm_args"))
    args.m = args.n = args.k = args.lda = args.ldb = args.ldd = SIZE
    args.a, args.b, args.d = (ffi.cast("void *", x) for x in (a, b, d))
    args.a_type = args.d_type = lib.LIBGEMM_BF16
    return args


def product(a: int, b: int, d: int) -> str:
    """What went wrong, "" for nothing. The context that is current afterwards must be D's."""
    if lib.libgemm_gemm(arguments(a, b, d)):
        return text(lib.libgemm_last_error())
    found = (ctypes.c_ushort * (SIZE * SIZE))()
    use("cuCtxSynchronize")
    use("cuMemcpyDtoH_v2", found, ctypes.c_uint64(d), ctypes.c_size_t(2 * SIZE * SIZE))
    return "" if set(found) == {BF16_SIZE} else "wrong numbers"


def reset() -> list[str]:
    """Before and after the GPU was reset, with the context current and in a thread that has none."""
    found = []
    for turn in range(3):
        use("cuCtxSetCurrent", retained(0))
        found += [f"turn {turn}: {words}" for words in [product(matrix(), matrix(), matrix())] if words]
        args = arguments(matrix(), matrix(), matrix())
        status = []
        thread = threading.Thread(target=lambda args=args, status=status: status.append(lib.libgemm_gemm(args)))
        thread.start()
        thread.join()
        use("cuCtxSynchronize")
        found += [f"turn {turn}: in a thread: {text(lib.libgemm_last_error())}"] * bool(status[0])
        use("cuDevicePrimaryCtxReset_v2", 0)
    return found


def second() -> list[str]:
    """All on GPU 1, in a thread without a context: none is made on GPU 0."""
    use("cuCtxPushCurrent_v2", retained(1))
    a, b, d = matrix(), matrix(), matrix()
    use("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    size, args = ffi.new("uint64_t *"), arguments(a, b, d)
    for what, status in (("workspace", lib.libgemm_gemm_workspace(args, size)), ("gemm", lib.libgemm_gemm(args))):
        if status:
            return [f"{what}: {text(lib.libgemm_last_error())}"]
        if is_active(0):
            return [f"{what} made a context on GPU 0"]
    return []


def peer() -> list[str]:
    """A on GPU 1, all else on GPU 0: refused by name until access is enabled, then right."""
    owner = retained(1)
    use("cuCtxPushCurrent_v2", owner)
    a = matrix()
    use("cuCtxSynchronize")
    use("cuCtxSetCurrent", retained(0))
    b, d = matrix(), matrix()
    words = product(a, b, d)
    if "peer access" not in words:
        return [f"without access: {words or 'taken'}"]
    use("cuCtxEnablePeerAccess", owner, 0)
    return [f"with access: {words}" for words in [product(a, b, d)] if words]


if __name__ == "__main__":
    use("cuInit", 0)
    print(*{"reset": reset, "second": second, "peer": peer}[sys.argv[1]](), sep="\n", end="")
