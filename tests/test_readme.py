"""README's commands, programs and links, as a reader would take them. What builds the examples is test_examples.py."""

import os
import re
import shlex
import subprocess
import sys
import zipfile

import pytest
from built import needs
from stand_in import ROOT, in_stand_in, run
from test_examples import commands

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
SHELL = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.M | re.S))
MAKES = [line for line in SHELL + INLINE if line.startswith("make ")]
PACKAGE = [line for line in SHELL if line.startswith("python -m libgemm ")]
INSTALL, PIP = "make install PREFIX=$HOME/.local", "pip install dist/libgemm-*.whl"
FOLDERS = ("aot", "bench", "build", "examples", "kernels", "runtime", "tests")


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def test_every_block_and_every_line_of_a_shell_has_a_test_here():
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "c", "cmake", "mermaid"}
    others = [line for line in SHELL if line not in MAKES + PACKAGE]
    assert [line.partition(" ")[0] for line in others] == ["pip", "cc"]
    assert {words_of(line)[1] for line in MAKES} >= {"build", "test", "install", "gpu-test", "bench", "tune", "report"}


def test_the_first_screen_has_what_convinces():
    opening = README.partition("\n## ")[0]
    assert len(opening.splitlines()) <= 60
    for words in ("<!-- figures", "<!-- library", ".summary.svg)", "```python", "```c", "make build", "make test",
                  "**What it is not.**", "Windows", "glibc", "gradients", "fp8", "Hopper"):  # fmt: skip
        assert words in opening


@pytest.mark.parametrize("line", MAKES)
def test_make_knows_the_target(line):
    done = subprocess.run(["make", "-n", *words_of(line)[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "python" in done.stdout  # and not "'build' is up to date": there is a folder of that name


def test_make_install_fills_the_prefix_as_printed(dist, tmp_path):
    assert INSTALL in SHELL
    done = subprocess.run(INSTALL, shell=True, cwd=ROOT, env=os.environ | {"HOME": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".local/lib/libgemm.so").read_bytes() == (dist / "lib/libgemm.so").read_bytes()


@pytest.fixture
def installed(dist, tmp_path):
    """A folder that has what pip would install, and nothing else."""
    assert any(words_of(line) == PIP.split() for line in SHELL)
    (wheel,) = ROOT.glob(PIP.split()[-1])
    zipfile.ZipFile(wheel).extractall(tmp_path)
    return tmp_path


def built_for(line: str):
    return pytest.param(line, marks=[needs(*map(int, re.findall(r"--target (\d+)", line)))])


@pytest.mark.parametrize("line", [built_for(line) for line in PACKAGE])
def test_the_package_s_commands_run_without_a_gpu(installed, line):
    done = run(sys.executable, *words_of(line)[1:], driver=False, folder=installed, PYTHONPATH=installed)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
    assert {"info": "libgemm ", "verify": "0 damaged", "explain": "gemm_bf16"}[words_of(line)[3]] in done.stdout


def test_the_c_example_and_its_command_are_those_that_are_tested():
    (line,) = [line for line in SHELL if line.startswith("cc ")]
    assert line.removesuffix(" && ./gemm") in commands("gemm.c")
    core, whole = blocks("c")
    assert whole.strip() == (ROOT / "examples" / "gemm.c").read_text().strip()
    for block, name in ((core, "gemm.c"), (*blocks("cmake"), "CMakeLists.txt")):
        lines = iter((ROOT / "examples" / name).read_text().splitlines())
        left_out = [line for line in block.splitlines() if line not in lines]  # in that order: `lines` goes on
        assert not left_out


def torch_of_the_readme():
    """The stand-in for torch, with what README's examples ask of it besides."""
    import torch_like

    torch = torch_like.install()

    def turned(tensor):
        *lead, rows, cols = range(len(tensor.shape))
        order = [*lead, cols, rows]
        shape, strides = ([values[i] for i in order] for values in (tensor.shape, tensor.strides))
        made = torch_like.Tensor(tensor.pointer, tuple(shape), tensor.dtype.name, tuple(strides))
        made.index = tensor.index
        return made

    torch.Tensor.T, torch.Tensor.mT = property(turned), property(turned)
    torch.randn = lambda *shape, device, dtype: torch.empty(shape, dtype=dtype, device=f"{device}:0")
    torch.tensor = lambda values, device, dtype: torch.empty(len(values), dtype=dtype, device=f"{device}:0")
    torch.rand = lambda *shape, device: torch.empty(shape, dtype=torch.float32, device=f"{device}:0")
    torch.Tensor.topk = lambda self, count: [
        torch.empty((self.shape[0], count), dtype=kind, device="cuda:0") for kind in (torch.float32, torch.int64)
    ]


INSIDE_TORCH = [program for program in blocks("python") if "import libgemm.torch" in program]


def test_the_example_inside_torch_runs_on_the_cpu():
    (program,) = INSIDE_TORCH
    from libgemm.frameworks.torch import operators
    from torch_reference import reference

    for name, function in reference.items():
        getattr(operators, name).register_kernel("cpu")(function)
    names = {}
    exec(compile(program.replace('device="cuda"', 'device="cpu"'), "README.md", "exec"), names)
    assert names["layer"].weight.grad.shape == (1024, 4096)
    assert names["y"].shape == (64, 1024)


@pytest.mark.parametrize("program", [program for program in blocks("python") if program not in INSIDE_TORCH])
@in_stand_in()
def test_a_python_example_runs_as_it_stands(program):
    from calls import launches

    torch_of_the_readme()
    assert not launches()
    names = {}
    exec(compile(program, "README.md", "exec"), names)
    calls = sum(program.count(f"libgemm.{name}(") for name in ("gemm", "grouped_mm", "moe", "cast"))
    assert calls and len(launches()) >= calls
    shapes = {name: names[name].shape for name in ("y", "z", "gradients") if name in names}
    known = (
        {"y": (4096, 14336)},
        {"z": (4096, 1024), "gradients": (8, 4096, 1024)},
        {"z": (4096, 1024)},
        {"y": (64, 2048)},
        {"y": (64, 1024)},
    )
    assert shapes in known


def test_links_and_named_files_exist(dist):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", README) if "://" not in link]
    paths = [word for word in INLINE if re.match(rf"({'|'.join(FOLDERS)})/\S*$", word) and "*" not in word]
    assert len(links) > 5 and len(paths) > 5
    assert not [name for name in links + paths if not (ROOT / name).exists()]
    named = [word for word in INLINE if re.match(r"\w+\.(md|pc|h)$", word)]
    assert not [name for name in named if not (ROOT / name).exists() and not list(dist.rglob(name))]


def test_the_tree_names_the_folders_that_are_there():
    tree = README.partition("\n## The tree\n")[2]
    assert set(re.findall(r"^    (\w+)/ ", tree, re.M)) == set(FOLDERS)
    assert all((ROOT / name).is_dir() for name in FOLDERS)


NODE = r'\w+(?:\["[^"\[\]]+"\])?'


def test_the_diagram_is_mermaid_and_its_folders_exist():
    (block,) = blocks("mermaid")
    head, *edges = block.splitlines()
    assert head == "flowchart LR" and len(edges) > 3
    assert not [edge for edge in edges if not re.fullmatch(rf"    {NODE}(?: --> {NODE})+", edge)]
    labelled, used = (set(re.findall(pattern, block)) for pattern in (r'(\w+)\["', r"\b([A-Z])\b(?=\[| -->|\n)"))
    assert used == labelled
    folders = [name for name in re.findall(r'\["(\w+)/', block) if name != "dist"]
    assert folders and set(folders) <= set(FOLDERS)


def test_no_number_of_the_build_stands_outside_the_marks():
    text = re.sub(r"<!-- (\w+): written.*?<!-- end of \1 -->", "", README, flags=re.S)
    assert not re.findall(r"\d+(?:\.\d+)? ?MB|\d+ (?:variants|kernels)|\b(?:six|seven|eight) architectures", text)
