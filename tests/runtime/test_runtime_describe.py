"""What tensors say of themselves, as calls are kept under it: torch's own by DLPack's exchange API, and where that
lacks. No launches."""

import ctypes
import struct
import sys
import threading
from types import SimpleNamespace

import libgemm
import pytest
from calls import launches
from exchange_like import API, Exchange, capsule
from libgemm._describe import by_attributes, by_exchange, describer
from libgemm._known import learn_torch
from stand_in import in_stand_in
from test_runtime_again import launched, operands
from torch_like import Tensor, install

torch = pytest.importorskip("torch")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this torch has no exchange API", allow_module_level=True)
CODES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32), "int32": (0, 32), "int64": (0, 64)}


def read(key: bytes) -> list:
    """A key of the library's, taken apart: (device type, device, code, bits, lanes, alignment, shape, strides)."""
    found, at = [], 0
    while at < len(key):
        (dimensions,) = struct.unpack_from("i", key, at)
        at += 4
        if dimensions < 0:
            found.append(None)
            continue
        form = f"=2i2BHi{2 * dimensions}q"
        numbers = struct.unpack_from(form, key, at)
        at += struct.calcsize(form)
        found.append((*numbers[:6], numbers[6 : 6 + dimensions], numbers[6 + dimensions :]))
    return found


def base(dtype=torch.float16):
    return torch.zeros(4, 6, 8, dtype=dtype)


REAL = {
    **{name: lambda name=name: base(getattr(torch, name)) for name in CODES},
    "matrix": lambda: base()[0],
    "vector": lambda: base()[0, 0],
    "0-d": lambda: base()[0, 0, 0],
    "transposed": lambda: base()[0].T,
    "turned": lambda: base().permute(2, 0, 1),
    "padded": lambda: base()[:, :, :5],
    "off 16 bytes": lambda: base()[0, :, 1:],
    "one row": lambda: base()[0, :1],
    "one column": lambda: base()[0, :, :1],
    "one of all": lambda: torch.zeros(1, 1, 1),
    "expanded": lambda: torch.zeros(1, 8).expand(6, 8),
    "no rows": lambda: base()[0, :0],
    "no memory": lambda: torch.zeros(0, 8),
    "parameter": lambda: torch.nn.Parameter(base()[0]),
    "weight": lambda: torch.nn.Linear(6, 8).weight.T,
    "negated": lambda: torch.ones(4, 4, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("name", REAL)
def test_torch_s_tensors_are_read_as_their_attributes_are(name):
    tensor, describe = REAL[name](), by_exchange(torch.Tensor)
    key, places = describe(tensor, None, tensor)
    place = tensor.data_ptr()
    type_, bits = CODES[str(tensor.dtype).removeprefix("torch.")]
    facts = (1, 0, type_, bits, 1, place % 16 if place else 16, tuple(tensor.shape), tensor.stride())
    assert read(key) == [facts, None, facts]
    assert struct.unpack("3Q", places) == (place, 0, place)


def test_keys_are_equal_where_attributes_are_and_nowhere_else():
    describe, tensors = by_exchange(torch.Tensor), [make() for make in REAL.values()]
    keys = {}
    for tensor in tensors:
        facts = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.data_ptr() % 16, tensor.data_ptr() == 0
        keys.setdefault(describe(tensor)[0], set()).add(facts)
    assert all(len(facts) == 1 for facts in keys.values())
    assert len(keys) == len(set().union(*keys.values())) > 15
    a, b = tensors[:2]
    assert len({describe(*some)[0] for some in ((a, b), (b, a), (a, None), (None, a), (a,), (a, a), ())}) == 7


UNREADABLE = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "meta": lambda: torch.empty(4, 4, device="meta"),
    "no tensor": lambda: [[1.0]],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_raises_as_torch_does(name):
    describe, fine = by_exchange(torch.Tensor), torch.zeros(4, 4)
    for _ in range(3):
        with pytest.raises((RuntimeError, TypeError, AttributeError)):
            describe(fine, UNREADABLE[name]())
    assert len(read(describe(fine, fine)[0])) == 2


def test_too_many_dimensions_or_tensors_are_not_described():
    describe, tensor = by_exchange(torch.Tensor), torch.zeros(4, 4)
    assert describe(tensor, torch.zeros(1, 1, 1, 1)) == () == describe(*[tensor] * 10)
    assert len(read(describe(*[tensor] * 9)[0])) == 9 and describe() == (b"", b"")


def test_nothing_is_left_behind():
    describe, tensor = by_exchange(torch.Tensor), torch.zeros(4, 4)

    def blocks() -> int:
        for _ in range(1000):
            describe(tensor, None, tensor)
            describe(torch.zeros(1, 1, 1, 1))
        return sys.getallocatedblocks()

    before = blocks()
    assert abs(blocks() - before) < 100


def test_threads_read_their_own_tensors():
    describe, wrong = by_exchange(torch.Tensor), []

    def work(rows: int) -> None:
        tensor = torch.zeros(rows, 8)
        wanted = by_exchange(torch.Tensor)(tensor, None)
        for _ in range(3000):
            if describe(tensor, None) != wanted:
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(("name", "words"), [("sparse", "layout torch.sparse_coo"), ("meta", "a is a meta tensor")])
def test_a_call_of_what_cannot_be_read_is_refused_in_its_words(name, words):
    learn_torch()
    for _ in range(2):
        with pytest.raises(libgemm.Error, match=words):
            libgemm.gemm(UNREADABLE[name](), torch.zeros(4, 4))


UNREAD, OTHER = Exchange(1, 3), Exchange(2, 0, None, read=API.read)  # capsules do not keep what they refer to
NEWER, ANOTHER = Exchange(2, 0, ctypes.addressof(API)), b"another"
UNFIT = {
    "an older torch": {},
    "another capsule": {"__dlpack_c_exchange_api__": capsule(API, ANOTHER)},
    "no capsule": {"__dlpack_c_exchange_api__": None},
    "another major version": {"__dlpack_c_exchange_api__": capsule(OTHER)},
    "one that cannot read": {"__dlpack_c_exchange_api__": capsule(UNREAD)},
}


@pytest.mark.parametrize("name", UNFIT)
def test_without_a_fit_exchange_api_attributes_are_asked(name):
    kind = type("Type", (), UNFIT[name])
    assert by_exchange(kind) is None
    assert describer(SimpleNamespace(Tensor=kind)) is by_attributes


@in_stand_in()
def test_an_earlier_version_behind_a_newer_one_is_found():
    install()
    Tensor.__dlpack_c_exchange_api__ = capsule(NEWER)
    key, places = describer(sys.modules["torch"])(Tensor(4096, (3, 5)), None)
    assert read(key) == [(2, 0, 2, 16, 1, 0, (3, 5), (5, 1)), None] and struct.unpack("2Q", places) == (4096, 0)


@in_stand_in()
def test_a_known_call_asks_no_tensor_for_what_the_exchange_api_says():
    install()
    launched(operands())  # here the package learns of torch, so that the next call is the first that is kept
    launched(operands())
    with pytest.MonkeyPatch.context() as monkeypatch:
        for attribute in ("stride", "get_device", "is_contiguous", "device"):
            monkeypatch.delattr(Tensor, attribute)
        libgemm.gemm(**operands())
    assert len(launches()) == 3
