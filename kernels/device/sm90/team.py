"""Warpgroups that run the same code: which of them a thread is in, and what each does by itself. No kernel here.

A partition of eight warps is compiled once where two of four are compiled twice, to twice the code that a
multiprocessor reads. Its warpgroups, a team, need not be in the same tile: what is one number for all threads of a
partition, as the compiler has it, is one for those of a warpgroup here. So nothing may be asked of the partition where
all threads meet or one does it for all: a barrier, a message, a copy by TMA. They are below, for a warpgroup; what is
true of tensors says team_layouts.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from kernels.device.sm90.loader_assembly import wait_for_phase

FIRST_BARRIER = gl.constexpr(14)  # of sixteen: the compiler numbers its own from 0 on


@gluon.jit
def thread_number():
    """Of each thread here. Assembly is given it: where it asks itself (%tid.x), the assembler takes all threads of the
    kernel for apart, and hands TMA its operands in a loop over them, a hundred cycles for each copy."""
    THREADS: gl.constexpr = gl.num_warps() * 32
    return gl.arange(0, THREADS, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))


@gluon.constexpr_function
def member_assembly(in_cluster):
    """Of thread $4: $0 its warpgroup's number, $1 its warp's in there, by a word from the warp's first thread, so that
    the assembler knows either as one for the whole warp; $2 1, of one thread of the warpgroup, else 0. And $3 by how
    much an address in this block's shared memory is more than the one that assembly is given."""
    window = "mov.u32 $3, %cluster_ctarank;\nmapa.shared::cluster.u32 $3, 0, $3;" if in_cluster else "mov.u32 $3, 0;"
    lines = [
        "{ .reg .pred one; .reg .b32 x;", "shr.u32 x, $4, 5;", "shfl.sync.idx.b32 x, x, 0, 31, 0xffffffff;",
        "shr.u32 $0, x, 2;", "and.b32 $1, x, 3;", "and.b32 x, $4, 127;", "setp.eq.u32 one, x, 0;",
        "selp.b32 $2, 1, 0, one;", window, "}",
    ]  # fmt: skip
    return "\n".join(lines)


@gluon.constexpr_function
def tell_assembly():
    """An arrival at barrier $0, by the thread whose $1 is 1, unless $2 is 0."""
    lines = [
        "{ .reg .pred one;", "setp.ne.s32 one, $1, 0;", "setp.ne.and.s32 one, $2, 0, one;",
        "@one mbarrier.arrive.shared::cta.b64 _, [$0]; }",
    ]  # fmt: skip
    return "\n".join(lines)


@gluon.aggregate
class Team:
    """A thread's place in it, and what its warpgroup does. A team of one is a partition: there barriers and waits are
    the compiler's own."""

    number: gl.tensor  # of this warpgroup
    warp: gl.tensor  # of this warp in it
    leads: gl.tensor  # 1 of one thread of it, else 0
    window: gl.tensor  # see `at`
    SIZE: gl.constexpr  # warpgroups
    IN_CLUSTER: gl.constexpr

    @gluon.jit
    def at(self, memory):
        """The address of what is in this block's shared memory: assembly is given it without the block's rank."""
        if self.IN_CLUSTER:
            return gl.inline_asm("add.u32 $0, $1, $2;", "=r,r,r", [memory, self.window], gl.int32, is_pure=False)
        else:
            return memory

    @gluon.jit
    def meet(self):
        if self.SIZE == 1:
            gl.barrier()
        else:
            number = self.number + FIRST_BARRIER
            gl.inline_asm("bar.sync $0, 128;", "r,~{memory}", [number], [], is_pure=False)

    @gluon.jit
    def wait(self, bar, parity):
        if self.SIZE == 1:
            mbarrier.wait(bar, parity)
        else:
            given = (self.at(bar), gl.to_tensor(parity))
            gl.inline_asm(wait_for_phase(), "r,r,~{memory}", given, [], is_pure=False)

    @gluon.jit
    def tell(self, bar, pred=True):
        """A barrier, once, when all of the warpgroup are here."""
        if self.SIZE == 1:
            mbarrier.arrive(bar, count=1, pred=pred)
        else:
            self.meet()
            given = (self.at(bar), self.leads, gl.to_tensor(pred).to(gl.int32))
            gl.inline_asm(tell_assembly(), "r,r,r,~{memory}", given, [], is_pure=False)


@gluon.jit
def alone():
    """Of warps whose barriers and waits are the compiler's own."""
    none = gl.to_tensor(0)
    return Team(none, none, none, none, 1, False)


@gluon.jit
def make_team(IN_CLUSTER: gl.constexpr = False):
    """Of all warpgroups of a partition."""
    SIZE: gl.constexpr = gl.num_warps() // 4
    words: gl.constexpr = (gl.int32, gl.int32, gl.int32, gl.int32)
    number, warp, leads, window = gl.inline_asm(
        member_assembly(IN_CLUSTER), "=&r,=&r,=&r,=&r,r", [thread_number()], words, is_pure=False
    )
    if SIZE == 1:
        number = gl.to_tensor(0)
    return Team(number, warp, leads, window, SIZE, IN_CLUSTER)
