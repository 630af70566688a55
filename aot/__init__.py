"""HOW a variant becomes C, as pure functions; `build` does the writing.

compile.py    (Variant) -> Artifact: the cubin and its launch facts, without a GPU
retype.py     a kernel's PTX from its twin's: another type, a later GPU
toolchain.py  the known state that Triton compiles in: environment, assembler, architecture, entry symbol
params.py     what a compiled kernel takes: parameters and descriptor boxes
elf.py        a cubin's own headers, against which the launcher's parameters are checked
artifact.py   the record between the two halves: a leaf
pack.py       Artifacts -> one blob of packed cubins
manifest.py   the build id and the record that travels in the library
render.py     Artifacts -> C text: one launcher a kernel, one table of rows
templates/    what is generated: launchers and tables
csrc/         what is not: libgemm.h, the public header and manual, and the C core: api/ reads and checks arguments,
              select/ goes from a problem to a row, launch/ from a row to a kernel in a stream
"""
