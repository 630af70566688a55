"""Where the launch epochs of split K begin: somewhere else in each process, since memory outlives them."""

from built import needs
from stand_in import python

FIRST_EPOCH = """
from calls import at, last_launch, ok, values
from test_capi_fast import call_of, fast_rows
v = next(v for v in fast_rows() if "_split_swap" in v.name and v.block_m == 8 and v.trans_b)
call = call_of(v, m=8, n=256, k=8192, lda=8192, ldb=8192, ldc=256, ldd=256)
ok(call.set(workspace=at(6), workspace_bytes=call.workspace()).run())
print(values(last_launch())["epoch"])
"""


@needs(90)  # whose rows split K through a workspace
def test_the_first_launch_of_a_process_has_a_random_epoch():
    """A workspace may still hold what a process before wrote: its first epochs must not be those of this one."""
    first = [int(python(FIRST_EPOCH)) for _ in range(3)]
    assert len(set(first)) == 3
    assert all(1 << 30 < epoch < 1 << 54 for epoch in first)  # a chance of 2^-24 to be smaller
