"""The GPU correctness suite: needs torch and a GPU (or its stand-in), no pytest and no compiler. Not the host tests."""
