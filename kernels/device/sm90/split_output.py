"""How a tile leaves whose K several units share: their sums of products meet in the workspace. No kernel here."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.sm90.epilogue import Output, columns_before
from kernels.device.sm90.team_layouts import of_all


@gluon.constexpr_function
def begin_assembly():
    """The thread whose $2 is 1 makes the semaphore at $0 this launch's own, $1, unless it is already."""
    return """{ .reg .pred one, other; .reg .b64 seen, epoch;
        setp.ne.s32 one, $2, 0;
        mov.b64 seen, $1;
        @one atom.relaxed.gpu.global.cas.b64 seen, [$0], 0, $1;
        setp.ne.and.b64 one, seen, 0, one;
        shr.s64 epoch, seen, 8; shl.b64 epoch, epoch, 8;
        setp.ne.and.b64 other, epoch, $1, one;
        @other atom.relaxed.gpu.global.cas.b64 seen, [$0], seen, $1; }"""


@gluon.constexpr_function
def arrive_assembly():
    """The thread whose $2 is 1 adds 1 to the semaphore at $0, and writes how many had come before to shared memory, at
    $1."""
    return """{ .reg .pred one; .reg .b64 before; .reg .b32 low;
        setp.ne.s32 one, $2, 0;
        @one atom.acq_rel.gpu.global.add.u64 before, [$0], 1;
        cvt.u32.u64 low, before; and.b32 low, low, 255;
        @one st.shared.b32 [$1], low; }"""


@gluon.constexpr_function
def clear_assembly():
    """The thread whose $1 is 1 sets the semaphore at $0 to 0."""
    return "{ .reg .pred one; setp.ne.s32 one, $1, 0; @one st.relaxed.gpu.global.b64 [$0], 0; }"


@gluon.jit
def numbers(part, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    """Where a part's elements stand among those of a tile of WIDTH columns, the part's first one FIRST."""
    rows = gl.arange(0, part.shape[0], gl.SliceLayout(1, part.type.layout))
    cols = gl.arange(0, part.shape[1], gl.SliceLayout(0, part.type.layout))
    return rows[:, None] * WIDTH + FIRST + cols[None, :]


@gluon.aggregate
class SplitOutput:
    """Slices of one tile reduce in the workspace: the last to arrive adds all of them, in order, and stores the tile.

    `semaphores` has one int64 for each tile, of any content: epoch << 8 | arrivals while a tile's slices arrive, where
    the epoch is this launch's own, and 0 afterwards, so that a replay of the launch starts anew.
    """

    out: Output
    partials: gl.tensor  # float32, [tile][split][rows][cols]
    semaphores: gl.tensor
    epoch: gl.tensor
    splits: gl.tensor
    earlier: gl.shared_memory_descriptor  # [warpgroup]: how many slices of its tile were there before this one
    MOST: gl.constexpr

    @gluon.jit
    def begin(self, unit, left, right, team):
        """Make the tile's slot this launch's own, off the critical path: whoever comes first does it."""
        slot = (self.semaphores + unit // self.splits).to(gl.int64)
        gl.inline_asm(begin_assembly(), "l,l,r,~{memory}", [slot, self.epoch << 8, team.leads], [], is_pure=False)
        return self.out.begin(unit, left, right, team)

    @gluon.jit
    def sum_of_part(self, part, first, PLACE: gl.constexpr, WIDTH: gl.constexpr):
        """Of all slices, in order; several loads in flight, as many as registers hold: one at a time would wait for L2
        at each."""
        SIZE: gl.constexpr = part.shape[0] * WIDTH
        DEPTH: gl.constexpr = 16 if SIZE <= 1024 else max(16384 // SIZE, 1)
        inside = numbers(part, PLACE, WIDTH)
        total = gl.zeros_like(part)
        for i in range(0, self.splits, DEPTH):
            for j in gl.static_range(DEPTH):
                here = (i + j < self.splits) & (inside >= 0)
                total += gl.load(first + (i + j) * SIZE + inside, mask=here, other=0.0, cache_modifier=".cg")
        return total

    @gluon.jit
    def sums(self, parts, first, WIDTH: gl.constexpr, PART: gl.constexpr = 0):
        """The sums of parts from number PART on."""
        own = (self.sum_of_part(parts[PART], first, columns_before(parts, PART), WIDTH),)
        if len(parts) == PART + 1:
            return own
        else:
            return own + self.sums(parts, first, WIDTH, PART + 1)

    @gluon.jit
    def store(self, parts, number, phase, left, right, unit, asked, team):
        WIDTH: gl.constexpr = columns_before(parts, len(parts))
        SIZE: gl.constexpr = parts[0].shape[0] * WIDTH
        tile = unit // self.splits
        for i in gl.static_range(len(parts)):
            part, below = of_all(parts[i])
            at = numbers(part, columns_before(parts, i), WIDTH) - below * WIDTH
            gl.store(self.partials + unit.to(gl.int64) * SIZE + at, part)
        team.meet()  # every warp's part is written before the arrival is told
        slot = (self.semaphores + tile).to(gl.int64)
        earlier = self.earlier.index(number)
        gl.inline_asm(arrive_assembly(), "l,r,r,~{memory}", [slot, earlier, team.leads], [], is_pure=False)
        team.meet()  # all read what one has been told
        before = gl.inline_asm("ld.shared.b32 $0, [$1];", "=r,r,~{memory}", [earlier], gl.int32, is_pure=False)
        if before + 1 == self.splits:
            first = self.partials + (tile * self.splits).to(gl.int64) * SIZE
            phase = self.out.store(self.sums(parts, first, WIDTH), number, phase, left, right, unit, asked, team)
            gl.inline_asm(clear_assembly(), "l,r,~{memory}", [slot, team.leads], [], is_pure=False)
        return phase

    @gluon.jit
    def drain(self):
        self.out.drain()


@gluon.jit
def make_split_output(out, partials, semaphores, epoch, splits):
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    earlier = gl.allocate_shared_memory(gl.int32, [2, 1], plain)
    return SplitOutput(out, partials, semaphores, epoch, splits, earlier, out.MOST)
