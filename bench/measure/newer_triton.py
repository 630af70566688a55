"""What peers written for a later Triton ask of the Triton that is there. Not libgemm's own: it asks nothing of it."""


def lend_names() -> None:
    """Triton 3.6's GPUTarget has no is_cuda_backend; ImportError where there is no Triton."""
    from triton.backends.compiler import GPUTarget

    if not hasattr(GPUTarget, "is_cuda_backend"):
        GPUTarget.is_cuda_backend = lambda self: self.backend == "cuda"
