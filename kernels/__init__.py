"""WHAT libgemm can compute. table/ says what exists, as data; device/ how it computes, as Triton and Gluon kernels.

What to add, and where; CONTRIBUTING.md walks through each:

a variant        a row of table/untuned.py or table/portable.py; Hopper's follow from the tiles in table/tuned/
a tile           a row of the grid in build/tune/candidates.py, then `make candidates tune`
an activation    a name in table/activations.py, its branch in `activate` of device/portable/tiles.py, its enum line in
                 aot/csrc/libgemm.h, its float64 formula and bound in tests/gpu/reference.py
an element type  a row of table/dtypes.py, and kernels that take it
an architecture  a row of table/targets.py, and tiles for it in table/untuned.py
a kernel         a function in a module of device/, a record in table/families.py, rows
"""
