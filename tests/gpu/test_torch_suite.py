"""torch_suite.py, on a file of tests made here, without a GPU and without torch."""

from types import SimpleNamespace

from tests.gpu import torch_suite

SOURCE = """
import unittest
from owner_of_products import product

class TestProducts(unittest.TestCase):
    def test_grouped_gemm_right(self):
        self.assertEqual(product.mm(2, 3), 6)
    def test_grouped_gemm_wrong(self):
        self.assertEqual(product.mm(2, 3), {wrong})
    def test_grouped_gemm_scaled(self):
        self.fail("not asked for")
    @unittest.skip("not here")
    def test_grouped_gemm_skipped(self):
        pass
    def test_other(self):
        self.fail("not asked for")
"""


def outcome(tmp_path, monkeypatch, capsys, wrong: int, wanted: str = "grouped_gemm", called: bool = True):
    product = SimpleNamespace(mm=lambda a, b: a * b)
    monkeypatch.setitem(torch_suite.sys.modules, "owner_of_products", SimpleNamespace(product=product))
    path = tmp_path / "tests_of_products.py"
    path.write_text(SOURCE.format(wrong=wrong))
    owners = ((product, "mm"), (product, "absent")) if called else ()
    status = torch_suite.run(path, wanted, "scaled", owners, lambda a, b: a * b)
    return status, capsys.readouterr().out.splitlines()[-1]


def test_tests_of_that_name_run_through_the_drop_in(tmp_path, monkeypatch, capsys):
    assert outcome(tmp_path, monkeypatch, capsys, 6) == (0, "2 passed, 0 failed, 1 skipped; 2 calls of libgemm")


def test_a_failure_is_one(tmp_path, monkeypatch, capsys):
    assert outcome(tmp_path, monkeypatch, capsys, 7) == (1, "1 passed, 1 failed, 1 skipped; 2 calls of libgemm")


def test_nothing_that_ran_is_no_success(tmp_path, monkeypatch, capsys):
    assert outcome(tmp_path, monkeypatch, capsys, 6, "nothing")[0] == 1
    assert outcome(tmp_path, monkeypatch, capsys, 6, called=False) == (
        1, "2 passed, 0 failed, 1 skipped; 0 calls of libgemm",
    )  # fmt: skip
