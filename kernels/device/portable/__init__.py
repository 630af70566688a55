"""The reference set, in Triton: any shape, any alignment, every target; and the copies that go before faster kernels.

gemm.py, grouped_gemm.py, grouped_mm.py   a kernel for each operation
gemm_sum.py   adds up what blocks that share K left behind them (sm90/gemm_stream.py)
moe_mm.py     the products of a layer of experts; gate.py: how their two halves meet
moe.py        what is beside them: sorting by expert, and adding up each token's rows; moe_few.py: few choices sorted
moe_cast.py, moe_gate.py   rows cast for products in 8 bits; the gate by itself, and its gradient
cast.py, cast_transpose.py   casts to 8 bits, and transposed; words.py, eight_bits.py: what they share
align.py      copies operands to where TMA and tensor cores can read them
tiles.py      what products share: tile order, operand loads, the K loop, the epilogue; blocks.py: of 8-bit operands,
              times the scales of their blocks
overlap.py    how a kernel begins before the one ahead of it in the stream has ended
"""
