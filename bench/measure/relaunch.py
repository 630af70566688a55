"""One captured launch, to be launched again with the same function, grid and parameters. Imports no framework."""

import ctypes

RELAXED_CAPTURE, CLUSTER = 2, 4  # CU_STREAM_CAPTURE_MODE_RELAXED, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class NodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint), ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p),
    )  # fmt: skip


class Attribute(ctypes.Structure):
    """CUlaunchAttribute; of the value only the cluster's three sizes are used."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


class Launch(ctypes.Structure):
    """struct launch of host.c."""

    _fields_ = (
        ("config", ctypes.POINTER(Config)), ("function", ctypes.c_void_p), ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )  # fmt: skip


class Driver:
    """The CUDA driver's functions, each failing with its name."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value

    def __getattr__(self, name: str):
        function = getattr(self.library, name)

        def call(*arguments) -> None:
            if result := function(*arguments):
                raise RuntimeError(f"{name} failed with CUDA error {result}")

        return call


def captured(driver: Driver, stream: int, call) -> Launch:
    """The one launch that `call` makes on this stream, as something to launch again there."""
    handle, graph, count, node = ctypes.c_void_p(stream), ctypes.c_void_p(), ctypes.c_size_t(1), ctypes.c_void_p()
    driver.cuStreamBeginCapture_v2(handle, RELAXED_CAPTURE)
    try:
        call()
    finally:
        driver.cuStreamEndCapture(handle, ctypes.byref(graph))
    driver.cuGraphGetNodes(graph, None, ctypes.byref(count))
    if count.value != 1:
        raise RuntimeError(f"one call made {count.value} graph nodes: 1 was expected")
    driver.cuGraphGetNodes(graph, ctypes.byref(node), ctypes.byref(count))
    params, cluster = NodeParams(), Attribute(id=CLUSTER)
    driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(params))
    driver.cuGraphKernelNodeGetAttribute(node, CLUSTER, ctypes.byref(cluster.value))
    config = Config(params.grid, params.block, params.shared, stream, ctypes.pointer(cluster), 0)
    config.attribute_count = int(any(size > 1 for size in cluster.value[:3]))
    # The graph owns the parameters: it is never destroyed.
    return Launch(ctypes.pointer(config), params.function or params.kernel, params.parameters, params.extra)
