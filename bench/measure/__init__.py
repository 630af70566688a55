"""What is timed, and how: on a GPU, with torch, libgemm beside its peers. Writes no report."""
