"""HOW IT COMPUTES: Triton and Gluon kernels, a room for each set. Imports Triton and this room, never the table."""
