"""The reference set, in Triton: any shape, any alignment, every target; and the copies that go before faster kernels.

gemm.py, grouped_gemm.py, grouped_mm.py   a kernel for each operation
moe_mm.py     the products of a layer of experts; gate.py: how their two halves meet
moe.py        what is beside them: sorting by expert, and adding up each token's rows
align.py      copies operands to where TMA and tensor cores can read them
tiles.py      what those share: tile order, operand loads, the K loop, the epilogue
"""
