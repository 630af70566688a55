"""The examples as a user builds them: by the command in each one's first comment, in a folder with dist/ alone."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from stand_in import ROOT, environment, run

EXAMPLES = ROOT / "examples"
# file -> (exit status without a driver, what it says of the stand-in GPU's product, which is all 0, with its status)
SAID = {
    "gemm.c": (3, "D[0][0] = 0, not 762", 99),
    "gemm.cpp": (1, "element 0 of D is wrong: 0.000000", 1),
    "CMakeLists.txt": (3, "D[0][0] = 0, not 762", 99),
    "gemm.rs": (3, "D[0][0] = 0, not 762", 99),
}
PROGRAM = {"CMakeLists.txt": "gemm-build/gemm"}
TOOLS = r"(?:cc|c\+\+|cmake|rustc) .*"


def commands(name: str) -> list[str]:
    """The lines of the first comment that a shell is meant to take."""
    comment = re.match(r"(?:(?:/\*| \*|//!?|#).*\n)+", (EXAMPLES / name).read_text())[0]
    return re.findall(rf"^\W+({TOOLS})$", comment, re.M)


CASES = [(name, command) for name in SAID for command in commands(name)]


@pytest.fixture
def folder(dist, tmp_path):
    """Nothing but dist/ and the examples."""
    shutil.copytree(dist, tmp_path / "dist", symlinks=True)
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def shell(command: str, folder) -> None:
    """Run what was typed; what the machine has no tool for is skipped."""
    for tool in re.findall(r"cc|c\+\+|cmake|rustc|pkg-config", command):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment(driver=False), capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def test_every_example_has_a_command_and_every_file_a_test():
    assert {path.name for path in EXAMPLES.glob("[!_]*")} == {*SAID, "transformers_experts.py", "fp8_linear.py"}
    assert {name for name, _ in CASES} == set(SAID) and len(CASES) == len(SAID) + 1  # C also by pkg-config


@pytest.mark.parametrize(("name", "command"), CASES)
def test_an_example_builds_by_its_command_and_runs(folder, manifest, name, command):
    shell(command, folder)
    program = folder / PROGRAM.get(name, "gemm")
    missing, wrong, status = SAID[name]
    done = run(program, driver=False, folder=folder)
    assert done.stdout.startswith("LIBGEMM_NO_DRIVER: NVIDIA driver library not found: libcuda.so.1")
    assert (done.returncode, done.stderr) == (missing, "")

    log = folder / "log"
    target = min(map(int, manifest["targets"]))
    done = run(program, folder=folder, FAKECUDA_LOG=log, FAKECUDA_SM=target)
    assert (done.stdout.strip(), done.returncode, done.stderr) == (wrong, status, "")  # no kernel runs there
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    launched = [call["result"] for call in calls if call["call"].startswith("cuLaunchKernel")]
    assert launched and set(launched) == {0}
    copied = [call["bytes"] for call in calls if call["call"] == "cuMemcpyDtoH_v2"]
    assert copied == [256 * 192 * 4]


HOST_GEMM = """
#include <libgemm.h>
libgemm_status libgemm_gemm(const libgemm_gemm_args *p) {
  const float *a = p->a, *b = p->b;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float *d = (float *)p->d + i * p->ldd + j;
      *d = 0;
      for (int64_t k = 0; k < p->k; k++) *d += a[i * p->lda + k] * b[k * p->ldb + j];
    }
  return LIBGEMM_OK;
}
"""


@pytest.mark.parametrize("name", SAID)
def test_an_example_accepts_the_right_numbers(folder, manifest, name):
    """The stand-in's memory is the host's, so a loop in libgemm's place can write there what a GPU would."""
    shell(commands(name)[0], folder)
    (folder / "host.c").write_text(HOST_GEMM)
    shell("cc -shared -fPIC host.c -I dist/include -o host.so", folder)
    words = {"LD_PRELOAD": folder / "host.so", "FAKECUDA_SM": min(map(int, manifest["targets"]))}
    done = run(folder / PROGRAM.get(name, "gemm"), folder=folder, **words)
    assert (done.stdout, done.stderr, done.returncode) == ("every number is right\n", "", 0)


def test_cmake_builds_the_c_plus_plus_example_too(folder):
    shell(commands("CMakeLists.txt")[0], folder)
    assert run(folder / "gemm-build" / "gemm_cpp", driver=False).stdout.startswith("LIBGEMM_NO_DRIVER: ")


def test_a_program_asks_for_the_soname_alone(folder):
    shell(commands("gemm.c")[0], folder)
    found = subprocess.run(["ldd", "gemm"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert f"libgemm.so.1 => {folder}/dist/lib/libgemm.so.1 " in found


RUST = '#[path = "examples/gemm.rs"]\n#[allow(dead_code)]\nmod gemm;\nuse gemm::*;\nuse std::mem::{offset_of, size_of};'


def test_the_rust_declarations_are_those_of_the_header(folder):
    """Fields, their places and sizes, and numbers, each asked of both compilers."""
    text = (EXAMPLES / "gemm.rs").read_text()
    struct = re.search(r"pub struct libgemm_gemm_args \{(.*?)\n\}", text, re.S)[1]
    fields = re.findall(r"pub (\w+): (.*),", struct)
    constants = re.findall(r"pub const (LIBGEMM_\w+): i32", text)
    assert len(fields) > 30 and len(constants) == 3
    c = [
        f'P("{f}", offsetof(libgemm_gemm_args, {f})); P("", sizeof(((libgemm_gemm_args *)0)->{f}));' for f, _ in fields
    ]
    c += [f'P("{name}", {name});' for name in constants] + ['P("all", sizeof(libgemm_gemm_args));']
    show = '#define P(name, value) printf("%s %lld\\n", name, (long long)(value))'
    main = f"#include <libgemm.h>\n#include <stdio.h>\n{show}\nint main(void) {{ {' '.join(c)} return 0; }}\n"
    (folder / "layout.c").write_text(main)
    r = [f'("{f}", offset_of!(libgemm_gemm_args, {f})), ("", size_of::<{kind}>()),' for f, kind in fields]
    r += [f'("{name}", {name} as usize),' for name in constants] + ['("all", size_of::<libgemm_gemm_args>()),']
    uses = "use std::ffi::{c_char, c_void};"
    body = f'for (name, value) in [{" ".join(r)}] {{ println!("{{name}} {{value}}"); }}'
    (folder / "layout.rs").write_text(f"{RUST}\n{uses}\nfn main() {{ {body} }}\n")
    shell("cc layout.c -I dist/include -o layout-c", folder)
    shell("rustc --edition 2021 layout.rs -L dist/lib -C link-arg=-Wl,-rpath,$PWD/dist/lib -o layout-rust", folder)
    said = [run(folder / f"layout-{language}", driver=False).stdout for language in ("c", "rust")]
    assert said[0] == said[1] and said[0].startswith("size 0\n 8\nm 8\n")


def test_the_example_for_transformers_compares_each_way(monkeypatch, capsys):
    """On a stand-in for transformers; tests/runtime/test_transformers.py has it on the real one, where there is one."""
    torch = pytest.importorskip("torch")
    asked = []

    class Toy(torch.nn.Linear):
        def set_experts_implementation(self, way):
            asked.append(way)

        def forward(self, ids, labels=None):
            logits = super().forward(ids[..., None].float())
            return SimpleNamespace(logits=logits, loss=logits.square().mean())

    ways = {"grouped_mm": None}
    experts = SimpleNamespace(register=ways.setdefault)
    made = {
        "transformers": {
            "AutoModelForCausalLM": SimpleNamespace(from_config=lambda config, dtype: Toy(1, 4)),
            "Qwen3MoeConfig": SimpleNamespace,
        },
        "transformers.integrations": {}, "transformers.integrations.moe": {"ALL_EXPERTS_FUNCTIONS": experts},
    }  # fmt: skip
    for name, fields in made.items():
        module = ModuleType(name)
        vars(module).update(fields)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "transformers_experts", raising=False)
    monkeypatch.setattr(sys, "argv", ["transformers_experts.py", "--device", "cpu", "--tokens", "8"])
    importlib.import_module("transformers_experts").main()
    monkeypatch.delitem(sys.modules, "transformers_experts")
    assert asked == ["eager", "grouped_mm", "libgemm"] and "libgemm" in ways
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[way, "0.0e+00"] for way in asked]
