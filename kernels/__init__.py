"""WHAT libgemm can compute: kernels, the vocabulary to describe them, and the table of variants.

To add a variant: add a row (or a `Config`) in variants.py. Its name, file, C row, manifest entry and GPU test follow
from it. `make build` compiles it and fails by name when it cannot.

To add a kernel: write it in a module of its own; name its run-time arguments as in arguments.ARGUMENTS (a new one is
added there and to `struct call` in aot/csrc/internal.h) and its compile-time arguments in CAPITALS as
Variant.constexprs() has them; then give it rows. CONTRIBUTING.md walks through both.

spec.py       Problem, Config, Variant; stdlib only
arguments.py  what a kernel may be told at run time
model.py      how long a variant takes: the formulas, and tuned/<target>.json, what tuning chose and measured
variants.py   the table
hopper.py, hopper_grouped.py   its rows for dense products and for packed groups on Hopper, the tiles that tuning chose
untuned.py    its rows for dense products where nobody has measured
candidates.py what tuning measures; not built by `make build`
tiles.py      device helpers the kernels share
gemm.py, grouped_gemm.py, grouped_mm.py   the reference set: any shape, any alignment, every target
gemm_sm90.py, cluster_sm90.py   the fast set for Hopper, in Gluon: dense; ring_sm90.py reads, output_sm90.py writes
grouped_swap_sm90.py, grouped_sm90.py, grouped_cluster_sm90.py   the same for packed groups: cut by rows, cut along K or
              not at all, few tiles with a long K; groups_sm90.py finds the groups, queue_sm90.py tells of them
gemm_descriptor.py   the fast set for Blackwell, in Triton: dense
grouped_gemm_sm90.py   the same for arrays of pointers to large matrices: it makes descriptors on the device
align.py      copies operands to where the fast sets can read them
"""
