"""C text and blobs -> libgemm.so, and proof that the file is what it must be. Compiles no kernel."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from build.compile_all import BuildError
from build.compiler import Compiler
from build.publish import files_in

CSRC = Path(__file__).resolve().parent.parent / "aot" / "csrc"
NEEDED = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}  # as platform tags of wheels name them
GLIBC_CEILING = (2, 17)
PREFIX = "libgemm_"


@dataclass(frozen=True)
class Linked:
    library: Path
    glibc: tuple[int, int]  # newest symbol version needed, measured
    machine: str  # of the file, which need not be this one


def header_text() -> str:
    return (CSRC / "libgemm.h").read_text()


def header_functions() -> set[str]:
    """Names of the functions the public header declares."""
    return set(re.findall(rf"\b({PREFIX}\w+)\(", re.sub(r"/\*.*?\*/", "", header_text(), flags=re.S)))


def exported_symbols(elf: ELFFile) -> set[str]:
    """Names defined for others; SHN_ABS is the version node itself."""
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    return {s.name for s in symbols if s.name and s["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS")}


def newest_glibc(elf: ELFFile) -> tuple[int, int]:
    versions = [(0, 0)]
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, auxiliaries in section.iter_versions():
                names = (re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", a.name) for a in auxiliaries)
                versions += [(int(m[1]), int(m[2])) for m in names if m]
    return max(versions)


def check_library(path: Path) -> Linked:
    """Raise BuildError unless the file exports exactly the header, needs only old glibc, and is hardened."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        faults = []
        exported, declared = exported_symbols(elf), header_functions()
        if exported != declared:
            faults.append(f"leaked symbols {sorted(exported - declared)}, missing {sorted(declared - exported)}")
        dynamic = next(s for s in elf.iter_sections() if isinstance(s, DynamicSection))
        tags = {tag.entry.d_tag: tag for tag in dynamic.iter_tags()}
        needed = {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
        if needed - NEEDED:
            faults.append(f"needs {sorted(needed - NEEDED)}; allowed is {sorted(NEEDED)}")
        for tag in ("DT_TEXTREL", "DT_RUNPATH", "DT_RPATH"):
            if tag in tags:
                faults.append(f"has {tag}")
        if "DT_BIND_NOW" not in tags and not tags["DT_FLAGS"].entry.d_val & 8:
            faults.append("is not linked with -z now")
        segments = {s["p_type"]: s for s in elf.iter_segments()}
        if "PT_GNU_RELRO" not in segments:
            faults.append("has no RELRO segment")
        if "PT_GNU_STACK" not in segments or segments["PT_GNU_STACK"]["p_flags"] & 1:
            faults.append("has an executable stack")
        if elf["e_machine"] not in MACHINES:
            faults.append(f"is for {elf['e_machine']}; allowed is {', '.join(MACHINES)}")
        glibc = newest_glibc(elf)
        if glibc > GLIBC_CEILING:
            faults.append("needs glibc {}.{}; at most {}.{} is allowed".format(*glibc, *GLIBC_CEILING))
    if faults:
        raise BuildError(f"{path.name}: {'; '.join(faults)}")
    return Linked(path, max(glibc, GLIBC_CEILING), MACHINES[elf["e_machine"]])


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:2])} ... failed in {folder}:\n{done.stderr.strip()[-4000:]}")


def link(files: dict[str, str | bytes], output: Path, csrc: Path = CSRC, compiler: Compiler | None = None) -> Linked:
    """Compile and link in a folder beside `output`, check, then rename: `output` is whole or untouched."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".link-", dir=output.parent) as name:
        folder = Path(name)
        for source in files_in(csrc):  # copytree would make a list of what stops it
            (folder / source.relative_to(csrc)).parent.mkdir(exist_ok=True)
            shutil.copyfile(source, folder / source.relative_to(csrc))
        for file, content in files.items():
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
        (folder / "exports.map").write_text(f"LIBGEMM_1 {{ global: {PREFIX}*; local: *; }};\n")
        sources = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.c"))
        run((compiler or Compiler()).command("libgemm.so", sources), folder)
        linked = check_library(folder / "libgemm.so")
        linked.library.rename(output)
    return Linked(output, linked.glibc, linked.machine)
