"""The GPUs that libgemm can be built for, by compute capability * 10. Data alone."""

from dataclasses import dataclass

from kernels.table.model import Speed


@dataclass(frozen=True)
class Target:
    shared_bytes: int  # shared memory one block can opt in to (CUDA programming guide, technical specifications table)
    multiprocessors: int  # of the usual product, for choices made without the GPU
    speed: Speed  # of that product, for rows nobody has measured
    suffix: str = ""  # of the architecture that the assembler is told: "sm_90a"
    code: int | None = None  # the lower minor revision whose code its rows run, so that both have one cubin
    multiplies_as: int | None = None  # the target whose text its general products are assembled from

    @property
    def portable(self) -> bool:
        """Whether later minor revisions of its compute capability run its code too."""
        return self.suffix != "a"


# compute capability * 10 -> facts. Plain code, and family-specific code (suffix f), also runs on later minor revisions
# of the same major one, 10.0's on 10.3; with suffix a it runs on that capability alone (PTX ISA, .target). Hopper's
# tensor core instructions exist with suffix a only, Blackwell's with f too. So a row of 8.6 is compiled as 8.0's: what
# differs between the two is how much shared memory a tile may take and which tiles are fast, which is the row's. 12.0's
# tensor cores are given registers (mma.sync), as 8.9's are, and its blocks as much shared memory.
TARGETS = {
    80: Target(163 << 10, 108, Speed(0.09, 0.6)),  # A100
    86: Target(99 << 10, 84, Speed(0.17, 1.4), code=80),  # A40, RTX 30
    87: Target(163 << 10, 16, Speed(0.2, 5.0)),  # Orin
    89: Target(99 << 10, 142, Speed(0.11, 1.3), code=80),  # L40S, RTX 40
    90: Target(227 << 10, 132, Speed(0.05, 0.3), "a"),  # H100, H200, GH200
    100: Target(227 << 10, 148, Speed(0.04, 0.15), "f"),  # B200
    103: Target(227 << 10, 148, Speed(0.04, 0.15), "f", code=100),  # B300
    110: Target(227 << 10, 20, Speed(0.05, 4.0), "f"),  # Thor
    120: Target(99 << 10, 188, Speed(0.1, 0.6), "f", multiplies_as=89),  # RTX PRO 6000, RTX 50
    121: Target(99 << 10, 48, Speed(0.1, 4.0), "f", code=120),  # GB10
}
FIRST_FP8 = 89  # whose tensor cores multiply 8-bit numbers
DEFAULT_TARGETS = (80, 86, 89, 90, 100, 120)
# Integrated GPUs: CUDA promises binary compatibility neither from nor to them (CUDA programming guide).
INTEGRATED = (87, 110)
