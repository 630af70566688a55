"""Where a step of the main loop finds its operands, carried from step to step: what is divided between two steps is
time in which the tensor cores wait. Of operands that are contiguous along K. No kernel here.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def word_of(operand, row):
    """Of the descriptor of an operand's first stage, from this row on, the half that says where."""
    return gl.inline_asm(
        "add.u32 $0, $1, $2;\nbfe.u32 $0, $0, 4, 14;\nor.b32 $0, $0, 65536;", "=r,r,r",
        [operand.bufs, operand.at(0, row)], gl.int32, is_pure=False,
    )  # fmt: skip


@gluon.constexpr_function
def units_of(operand):
    """From a stage to the next, in a descriptor's units of 16 bytes."""
    return operand.ROWS.value * operand.LINES.value * 8


@gluon.aggregate
class Place:
    """A step, where in the ring of stages it stands, and the words of its operands' descriptors."""

    step: gl.tensor
    slot: gl.tensor
    parity: gl.tensor  # of the phase in which the stage is ready
    left: gl.tensor
    right: gl.tensor

    @gluon.jit
    def after(self, stages, first):
        """The next step's, of a ring whose first stage is at `first`."""
        wraps = self.slot == stages.STAGES - 1
        slot = gl.where(wraps, 0, self.slot + 1)
        return place_at(stages, self.step + 1, slot, self.parity ^ wraps.to(gl.int32), first.left, first.right)

    @gluon.jit
    def beside(self, units: gl.constexpr):
        """Of rows of the right operand that stand so many units further on."""
        return Place(self.step, self.slot, self.parity, self.left, self.right + units)


@gluon.jit
def place_at(stages, step, slot, parity, left, right):
    """Left and right are those of the ring's first stage."""
    return Place(step, slot, parity, left + slot * units_of(stages.left), right + slot * units_of(stages.right))


@gluon.jit
def places(stages, step, row):
    """That of a step, of the left operand's rows from `row` on, and that of the ring's first stage."""
    none = gl.to_tensor(0)
    first = Place(step, none, none, word_of(stages.left, row), word_of(stages.right, 0))
    slot, parity = step % stages.STAGES, step // stages.STAGES & 1
    return place_at(stages, step, slot, parity, first.left, first.right), first
