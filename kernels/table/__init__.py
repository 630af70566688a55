"""WHAT EXISTS: the vocabulary, and every row of the table, by architecture. Standard library only; imports no kernel.

dtypes.py     element types, a row each
activations.py   what an epilogue can apply
families.py   the families of kernels, a record each
targets.py    the GPUs that can be built for
arguments.py  what a kernel may be told at run time
spec.py       Problem, Config, Variant: names, checks
rules.py      what tiles the kernels can have
model.py      how long a variant takes: the formulas, and tuned/<target>.json, what tuning chose and measured
portable.py   the rows of the reference set, for every target
sm90.py, sm90_grouped.py   those of dense products and of groups on Hopper: the tiles that tuning chose
untuned.py    those of dense products where nobody has measured
variants.py   all rows, checked
"""
