"""What `python -m build.compare` says of two manifests: nothing of a move, and by name each thing that was changed."""

import copy
import json

import pytest
from calls import manifest
from sample import ROOT

from build.compare import differences, main

# What is changed in a build's manifest -> what must be said to differ.
CHANGES = {
    "sha256": lambda m: m["variants"][3].update(sha256="0" * 64),
    "registers": lambda m: m["variants"][3].update(registers=1),
    "entry": lambda m: m["variants"][3].update(entry="other"),
    "boxes": lambda m: m["variants"][3].update(boxes=[{"name": "a_desc"}]),
    "guard": lambda m: m["variants"][3].update(guard=["never"]),
    "model": lambda m: m["variants"][3].update(model={}),
    "fit": lambda m: m["variants"][3].update(fit="0" * 16),
    "known": lambda m: m["known"].update(dict.fromkeys(m["known"], "0")),
    "toolchain": lambda m: m["toolchain"].update(triton="0"),
    "targets": lambda m: m["targets"].clear(),
    "params": lambda m: m["signatures"][m["variants"][3]["signature"]].pop(),
    "removed": lambda m: m["variants"].pop(),
    "added": lambda m: m["variants"].append({**m["variants"][0], "name": "new"}),
    "order": lambda m: m["variants"].reverse(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named(what):
    new = copy.deepcopy(manifest())
    CHANGES[what](new)
    assert what in differences(manifest(), new)


def test_where_a_build_comes_from_and_where_its_sources_stand_is_no_difference():
    new = {**copy.deepcopy(manifest()), "commit": "other", "build_id": "other", "version": "9.9.9"}
    new["signatures"] = {f"moved.{name}": params for name, params in new["signatures"].items()}
    for row in new["variants"]:
        row["kernel"], row["signature"] = f"moved.{row['kernel']}", f"moved.{row['signature']}"
    assert differences(manifest(), new) == {}


def test_the_command_says_it_and_its_exit_status_too(tmp_path, capsys):
    same, other = ROOT / "dist" / "manifest.json", tmp_path / "other.json"
    assert main([str(same), str(same)]) == 0
    assert capsys.readouterr().out == f"nothing differs: {len(manifest()['variants'])} variants\n"
    changed = copy.deepcopy(manifest())
    for row in changed["variants"]:
        row["registers"] += 1
    other.write_text(json.dumps(changed))
    assert main([str(same), str(other)]) == 1
    assert f"registers: {len(changed['variants'])}\n" in (out := capsys.readouterr().out)
    assert len(out.splitlines()) == 5  # the count, three examples, and how many more
    other.write_text("{}")
    assert main([str(same), str(other)]) == main([str(same), str(tmp_path / "none")]) == 2
    assert main([]) == 2
