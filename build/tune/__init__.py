"""Tuning: which tiles of a grid ship, and what the library's analytical model knows of them.

candidates.py   the grid, pruned by rule
library.py      `make candidates`: a library of the whole grid, on any machine
dense.py, grouped.py   `make tune`, on a GPU: time every candidate on many shapes, into measured/
merge.py        takes new times into the kept ones, on one scale
measured/       those times, packed
fit.py          chooses tiles, and fits the model's weights to the times, into kernels/table/tuned/
record.py       those times as numbers
weights.py      least squares for each tile
sharpen.py      moves the weights so that choosing by them loses less
"""
