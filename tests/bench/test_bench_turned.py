"""bench/measure/turned_groups.py on the CPU, torch in libgemm's place: what it draws, checks and says. No time."""

import pytest

torch = pytest.importorskip("torch")

from bench.measure import turned_groups as turned  # noqa: E402


def product(a, b, ends):
    """What torch._grouped_mm and libgemm.grouped_mm make of these, whatever is cut."""
    groups, begin = [], 0
    for g, end in enumerate(ends.tolist()):
        rows = slice(begin, end)
        if a.dim() == b.dim():
            groups.append(a[:, rows].float() @ b[rows].float())
        elif a.dim() == 2:
            groups.append(a[rows].float() @ b[g].float())
        else:
            groups.append(a[g].float() @ b[:, rows].float())
        begin = end
    made = torch.stack(groups) if a.dim() == b.dim() else torch.cat(groups, dim=0 if a.dim() == 2 else 1)
    return made.to(a.dtype)


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr("bench.measure.grouped.DEVICE", "cpu")
    monkeypatch.setattr(turned, "DEVICE", "cpu")
    monkeypatch.setattr(turned, "rotations", lambda _: 2)
    monkeypatch.setattr(turned, "alternate", lambda calls, inputs, us: {"ours": us, "torch": 3 * us})
    monkeypatch.setattr(turned.libgemm, "grouped_mm", lambda a, b, ends, out: out.copy_(product(a, b, ends)))
    monkeypatch.setattr(turned.torch, "_grouped_mm", lambda a, b, offs: product(a, b, offs), raising=False)


def small(ragged: str, layout: str) -> dict:
    sizes = [16, 0, 8]
    found = {"ragged": ragged, "layout": layout, "m": 24, "n": 24, "k": 24, "groups": 3, "sizes": sizes, "note": ""}
    return found


def test_every_cut_and_layout_is_drawn_and_none_that_rows_take_as_it_is():
    cases = turned.cases(7, 8)
    for cut, layouts in turned.LAYOUTS.items():
        own = [case for case in cases if case["ragged"] == cut]
        assert len(own) == 8 and {case["layout"] for case in own} == set(layouts)
        for case in own:
            assert case[{"M": "m", "N": "n", "K": "k"}[cut]] == sum(case["sizes"]) > 0
            assert all(size % turned.STEP == 0 for size in case["sizes"]) and len(case["sizes"]) == case["groups"]
    assert turned.cases(7, 8) == cases != turned.cases(8, 8)
    assert "TN" not in turned.LAYOUTS["K"] and not {"NN", "NT"} & set(turned.LAYOUTS["M"])


@pytest.mark.parametrize(("cut", "layout"), [(cut, layout) for cut, own in turned.LAYOUTS.items() for layout in own])
def test_a_case_is_measured_beside_torch(on_cpu, cut, layout):
    row = turned.measure(small(cut, layout))
    assert row["torch"] == 3 * row["ours"] > 0


def test_another_product_is_no_result(on_cpu, monkeypatch):
    monkeypatch.setattr(turned.libgemm, "grouped_mm", lambda a, b, ends, out: out.copy_(product(a, b, ends) * 1.1))
    with pytest.raises(SystemExit, match="is not torch's"):
        turned.measure(small("M", "TN"))


def test_what_it_says(on_cpu, monkeypatch, capsys):
    monkeypatch.setattr(turned, "cases", lambda seed, count: [small("M", "TN"), small("N", "NN"), small("K", "NT")])
    monkeypatch.setattr(turned.libgemm, "info", lambda: {"build_id": "b" * 64})
    monkeypatch.setattr(turned.torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr("sys.argv", ["turned_groups.py", "--seed", "5"])
    assert turned.main() == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 5, build bbbbbbbbbbbbbbbb, Some GPU\n")
    for cut in "MNK":
        assert f"\n{cut}: 3.00 of torch's time, at least 3.00, 1 products" in said
