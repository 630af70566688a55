"""python -m libgemm: what it prints, as lines and as JSON, what it refuses, and how it ends."""

import dataclasses
import json
import re
import subprocess
import sys

import libgemm
import pytest
from built import TARGET, needs
from libgemm.inspect import manifest
from stand_in import ROOT, environment, in_stand_in, run


def command(*words, driver: bool = False, **settings) -> subprocess.CompletedProcess:
    return run(sys.executable, "-m", "libgemm", *words, driver=driver, **settings)


def test_info_and_variants_tell_what_the_library_has():
    facts = libgemm.info()
    done = command("info")
    assert done.returncode == 0 and f"libgemm {facts['version']}, ABI 1, build {facts['build_id']}" in done.stdout
    for target, t in facts["targets"].items():
        assert f"sm_{target}: {t['variants']} variants, NVIDIA driver {t['min_driver']} or newer" in done.stdout
    names = [v.name for v in libgemm.variants()]
    assert len(names) == len(set(names)) == facts["variants"]
    assert [line.split()[0] for line in command("variants").stdout.splitlines()] == names
    listed = command("variants", "--target", str(TARGET)).stdout.splitlines()
    assert [line.split()[0] for line in listed] == [v.name for v in libgemm.variants() if v.target == TARGET]
    done = command("variants", "--target", "12")
    targets = ", ".join(map(str, facts["targets"]))
    assert (done.returncode, done.stdout) == (1, "") and f"target = 12: this library has {targets}" in done.stderr


def test_the_manifest_command_prints_the_manifest():
    done = command("manifest")
    assert done.returncode == 0 and json.loads(done.stdout) == manifest()


def test_explain_names_a_variant_and_why():
    done = command("explain", "4096", "4096", "4096", "--dtype", "f16", "--layout", "nt", "--target", str(TARGET))
    choice = libgemm.explain(4096, 4096, 4096, "f16", layout="nt", target=TARGET)
    variant, reason = choice.variant, choice.reason
    assert (done.returncode, done.stdout) == (0, f"{variant.name}\n{reason}\n")
    assert (variant.target, variant.a_type, variant.trans_a, variant.trans_b) == (TARGET, "f16", False, True)
    done = command("explain", "0", "8", "8", "--target", str(TARGET))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "-") and "empty" in done.stdout
    choice = libgemm.explain(64, 64, 64, "f16", aligned=False, target=TARGET)
    unaligned, reason = choice.variant, choice.reason
    assert not unaligned.align16 and not unaligned.single
    assert re.fullmatch(
        r"untuned: [\d.]+ us expected, chosen from \d+ kernels; [\d.]+ us with .*16-byte aligned.*", reason
    )


def test_explain_knows_scales():
    for scaling in ("row", "1x128_128x128", "1x128_1x128"):
        words = ("--dtype", "e4m3", "--scaling", scaling, "--target", str(TARGET))
        choice = libgemm.explain(4096, 4096, 4096, "e4m3", scaling=scaling, target=TARGET)
        assert command("explain", "4096", "4096", "4096", *words).stdout.splitlines()[0] == choice.variant.name
        assert libgemm.covers(4096, 4096, 4096, "e4m3", scaling=scaling, target=TARGET) == choice.covered


@needs(90)
def test_explain_tells_what_copies_make_possible():
    choice = libgemm.explain(4096, 4096, 4096, "f16", aligned=False, target=90)
    large, reason = choice.variant, choice.reason
    assert large.single and ", after A or B is copied to aligned rows in the workspace" in reason


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--target", "75"], "target = 75"),
        (["--dtype", "int8", "--target", str(TARGET)], "dtype int8"),
        (["--layout", "xx", "--target", str(TARGET)], "layout = 'xx'"),
        (["--dtype", "f32", "--target", str(TARGET)], "precision is needed"),
        (["--activation", "tanh", "--target", str(TARGET)], "activation = 'tanh'"),
        (["--dtype", "e4m3", "--scaling", "block", "--target", str(TARGET)], "scaling = 'block'"),
        (["--scaling", "row", "--target", str(TARGET)], "scaling = 2 with a_type bf16"),
        (["--out-dtype", "q", "--target", str(TARGET)], "out_dtype q is not one of f16, bf16, f32"),
        (["--ragged", "k", "--target", str(TARGET)], "--ragged k without --groups"),
        (["--groups", "2", "--batch", "3", "--target", str(TARGET)], "--batch 3 with --groups"),
        (["--groups", str(10**20), "--target", str(TARGET)], f"groups = {10**20}: an integer of 64 bits"),
        (["--target", str(10**11)], f"target = {10**11}: an integer of 32 bits"),
        (["--scaling", "row", "--groups", "2", "--target", str(TARGET)], "scaling = 2 with a_type bf16"),
        ([], "LIBGEMM_NO_DRIVER"),
    ],
)
def test_explain_refuses_by_name(words, part):
    done = command("explain", "8", "8", "8", *words)
    assert done.returncode == 1 and part in done.stderr and done.stdout == ""


@pytest.mark.parametrize("word", ["sm_90", "90a", "9.0", "sm_90a"])
@needs(90)
def test_a_target_may_be_written_as_others_do(word):
    assert command("explain", "8", "8", "8", "--target", word).stdout.count("__sm90__") == 1
    assert command("variants", "--target", word).stdout == command("variants", "--target", "90").stdout


def test_a_target_that_is_no_number_is_refused():
    done = command("explain", "8", "8", "8", "--target", "hopper")
    assert done.returncode == 2 and "'hopper': compute capability * 10 is needed" in done.stderr


@needs(90)
def test_explain_asks_all_that_python_asks():
    words = ("--target", "90", "--out-dtype", "f32", "--batch", "3", "--batch-invariant", "--unaligned")
    asked = {"out_dtype": "f32", "batch": 3, "batch_invariant": True, "aligned": False, "layout": "nt", "target": 90}
    choice = libgemm.explain(64, 64, 64, **asked)
    assert command("explain", "64", "64", "64", *words).stdout.splitlines() == [choice.variant.name, choice.reason]


def test_a_health_check_has_an_exit_status():
    assert command("info", "--check", driver=True).returncode == command("info").returncode == 0
    assert command("info", "--check").returncode == 1


def test_the_version_names_the_build():
    assert command("--version").stdout.split() == [
        "libgemm", f"{libgemm.__version__},", "build", libgemm.info()["build_id"][:16]
    ]  # fmt: skip


def test_explain_without_a_target_asks_the_gpu():
    done = command("explain", "8", "8", "8", driver=True)
    assert done.returncode == 0 and f"__sm{TARGET}__" in done.stdout


def test_a_word_that_is_no_command_is_refused():
    assert command("nonsense").returncode == 2 and command().returncode == 2


def test_info_says_whether_this_machine_is_served():
    alone, served = command("info"), command("info", driver=True)
    assert alone.returncode == served.returncode == 0
    assert alone.stdout.splitlines()[-1].startswith("here: LIBGEMM_NO_DRIVER: NVIDIA driver library not found")
    assert served.stdout.splitlines()[-1] == f"here: driver and GPU are served by the kernels for sm_{TARGET}"


@in_stand_in(SM=75)
def test_info_says_which_gpu_is_not_served():
    from libgemm.__main__ import here

    found = here()
    assert (found["served"], found["target"]) == (False, None) and "LIBGEMM_UNSUPPORTED_DEVICE" in found["error"]


def test_json_has_what_the_lines_have():
    info = json.loads(command("info", "--json").stdout)
    facts = libgemm.info()
    assert info["build_id"] == facts["build_id"] and info["here"]["served"] is False
    assert {int(target): t for target, t in info["targets"].items()} == facts["targets"]
    listed = json.loads(command("variants", "--json", "--target", str(TARGET)).stdout)
    assert listed == [dataclasses.asdict(v) for v in libgemm.variants() if v.target == TARGET]
    assert json.loads(command("verify", "--json").stdout) == {"variants": facts["variants"], "damaged": []}
    choice = libgemm.explain(512, 512, 512, target=TARGET)
    told = json.loads(command("explain", "512", "512", "512", "--target", str(TARGET), "--json").stdout)
    assert told == {**dataclasses.asdict(choice), "variant": choice.variant.name}


def test_a_reader_that_stops_reading_is_no_error_of_ours():
    words = f"{sys.executable} -m libgemm variants | head -1"
    done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=ROOT, env=environment(driver=False))
    assert done.stdout.split()[0] == libgemm.variants()[0].name and done.stderr == ""


def test_the_help_of_explain_has_examples_that_run():
    text = command("explain", "--help").stdout
    examples = re.findall(r"^  python -m libgemm (explain .+)$", text, re.M)
    assert len(examples) == 2
    for example in examples:
        done = command(*example.split())
        assert done.returncode == 0 and " us expected" in done.stdout, done.stderr
    words = ("dtype", "layout", "precision", "activation", "groups", "ragged", "target")
    for word in ("M ", "N ", "K ", *(f"--{word}" for word in words)):
        assert re.search(rf"^  {word}.*\S", text, re.M), word
