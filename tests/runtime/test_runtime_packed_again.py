"""Packed calls of torch tensors like one before: they skip the general way and launch what it would have launched."""

import libgemm
import pytest
from built import needs
from calls import at, launches, new_stream, values
from libgemm import _grouped_mm
from stand_in import in_stand_in
from test_runtime_again import by_both, launched
from torch_like import Parameter, Tensor, install, streams, torch


def ends(count: int = 3, dtype: str = "int32", place: int = 5) -> Tensor:
    return Tensor(at(place), (count,), dtype)


def rows(**changes) -> dict:
    plain = {"a": Tensor(at(0), (96, 64)), "b": Tensor(at(1), (3, 64, 80)), "offs": ends()}
    return {**plain, "out": Tensor(at(3), (96, 80)), **changes}


def columns(**changes) -> dict:
    return rows(**{"a": Tensor(at(0), (3, 96, 64)), "b": Tensor(at(1), (64, 80)), **changes})


def depth(**changes) -> dict:
    return rows(**{"b": Tensor(at(1), (64, 80)), "out": Tensor(at(3), (3, 96, 80)), **changes})


def batch(**changes) -> dict:
    return rows(**{"a": Tensor(at(0), (3, 96, 64)), "out": Tensor(at(3), (3, 96, 80)), "offs": None, **changes})


def jagged(**changes) -> dict:
    """A call of the other function, which has another name for its ends."""
    return {**rows(**changes), "offs": None, "group_offsets": ends(4)}


def scaled(
    scaling: str = "row", of_a: tuple = (96,), of_b: tuple = (3, 80), places: tuple = (9, 10), **changes
) -> dict:
    """8-bit rows with scales, each group's own."""
    a, b = Tensor(at(0), (96, 64), "float8_e4m3fn"), Tensor(at(1), (3, 64, 80), "float8_e4m3fn", strides=(5120, 1, 64))
    scales = {"a_scale": Tensor(at(places[0]), of_a, "float32"), "b_scale": Tensor(at(places[1]), of_b, "float32")}
    out = Tensor(at(3), (96, 80), "bfloat16")
    return rows(**{"a": a, "b": b, "out": out, "scaling": scaling, **scales, **changes})


def call(a, b, offs=None, group_offsets=None, **words):
    if group_offsets is None:
        return libgemm.grouped_mm(a, b, offs, **words)
    return libgemm.grouped_gemm_jagged(a, b, group_offsets, **words)


CALLS = {
    "rows": rows,
    "columns": columns,
    "depth": depth,
    "batch": batch,
    "jagged": jagged,
    "jagged, one b": lambda: jagged(b=Tensor(at(1), (64, 80))),
    "other addresses": lambda: rows(a=Tensor(at(7), (96, 64)), out=Tensor(at(8), (96, 80)), offs=ends(place=9)),
    "64-bit ends": lambda: rows(offs=ends(dtype="int64")),
    "b by columns": lambda: rows(b=Tensor(at(1), (3, 64, 80), strides=(64 * 80, 1, 64))),
    "b with gaps": lambda: rows(b=Tensor(at(1), (3, 64, 80), strides=(8192, 80, 1))),
    "other groups": lambda: rows(b=Tensor(at(1), (5, 64, 80)), offs=ends(5)),
    "bf16": lambda: {k: v if k == "offs" else Tensor(v.pointer, v.shape, "bfloat16") for k, v in rows().items()},
    "f32 out": lambda: depth(out=Tensor(at(3), (3, 96, 80), "float32")),
    "added to out": lambda: depth(out=Tensor(at(3), (3, 96, 80), "float32"), beta=1.0),
    "c": lambda: rows(c=Tensor(at(2), (96, 80)), beta=0.5),
    "unread c": lambda: rows(c=Tensor(at(2), (96, 80))),
    "bias": lambda: rows(bias=Tensor(at(4), (3, 80))),
    "one bias": lambda: rows(bias=Tensor(at(4), (80,))),
    "activation": lambda: rows(activation="relu"),
    "zero tail": lambda: rows(tail="zero"),
    "batch invariant": lambda: depth(batch_invariant=True),
    "no out": lambda: rows(out=None),
    "no out, f32": lambda: depth(out=None, out_dtype=torch.float32),
    "scales of rows": scaled,
    "scales elsewhere": lambda: scaled(places=(11, 12)),
    "scales for all": lambda: scaled(of_b=(80,)),
    "scales of rows, fast": lambda: scaled(precision="fast", out=None),
    "a number each": lambda: scaled("tensor", (), ()),
    "scales of blocks": lambda: scaled("1x128_128x128", (96, 1), (3, 1, 1)),
    "scales of a batch": lambda: scaled(
        of_a=(3, 96),
        a=Tensor(at(0), (3, 96, 64), "float8_e4m3fn"),
        offs=None,
        out=Tensor(at(3), (3, 96, 80), "bfloat16"),
    ),
    "8-bit rows without": lambda: {k: v for k, v in scaled().items() if "scal" not in k},
    "stream": lambda: rows(stream=2),
    "unaligned a": lambda: rows(a=Tensor(at(0) + 2, (96, 64))),
}


def known_anew(words: dict) -> dict:
    _grouped_mm.known.forget()
    return launched(words, call)


@by_both
@in_stand_in()
def test_calls_in_any_order_launch_what_they_did_anew(exchange):
    install(exchange)
    launched(rows(), call)
    wanted = {name: known_anew(make()) for name, make in CALLS.items()}
    for name in (*CALLS, *reversed(CALLS)):
        got = launched(CALLS[name](), call)
        assert got == wanted[name], (name, {k: (got.get(k), v) for k, v in wanted[name].items() if got.get(k) != v})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_grouped_mm, "packed_anew", lambda *_: pytest.fail("the general way"))
        for name in (name for name in CALLS if name != "unaligned a"):
            assert launched(CALLS[name](), call) == wanted[name]


REFUSED = {
    "ends on the CPU": lambda: rows(offs=Tensor(at(5), (3,), "int32", is_cuda=False)),
    "ends of a float type": lambda: rows(offs=ends(dtype="float32")),
    "ends with gaps": lambda: rows(offs=Tensor(at(5), (3,), "int32", strides=(2,))),
    "ends of other groups": lambda: rows(offs=ends(4)),
    "ends without memory": lambda: rows(offs=Tensor(0, (3,), "int32")),
    "no ends": lambda: rows(offs=None),
    "ends of a batch": lambda: batch(offs=ends()),
    "ends in a list": lambda: rows(offs=[32, 64, 96]),
    "b on the CPU": lambda: rows(b=Tensor(at(1), (3, 64, 80), is_cuda=False)),
    "a weight": lambda: rows(b=Parameter(at(1), (3, 64, 80), requires_grad=True)),
    "negated b": lambda: rows(b=Tensor(at(1), (3, 64, 80), negated=True)),
    "scales of another shape": lambda: scaled(of_b=(4, 80)),
    "scales on the CPU": lambda: scaled(b_scale=Tensor(at(10), (3, 80), "float32", is_cuda=False)),
    "scales of 16 bits": lambda: scaled(b_scale=Tensor(at(10), (3, 80), "bfloat16")),
    "one scale": lambda: scaled(b_scale=None),
    "scales of other types": lambda: rows(**{k: v for k, v in scaled().items() if "scal" in k}),
    "tail": lambda: rows(tail=["zero"]),
    "other tail": lambda: rows(tail="one"),
    "c of none": lambda: rows(out=None, beta=1.0),
}


def refusal(words: dict) -> str:
    with pytest.raises(libgemm.Error) as caught:
        call(**words)
    return str(caught.value)


@by_both
@in_stand_in()
def test_refusals_are_the_same_after_calls_that_were_legal(exchange):
    install(exchange)
    torch.grad = True
    wanted = {name: refusal(make()) for name, make in REFUSED.items()}
    for make in CALLS.values():
        launched(make(), call)
        launched(make(), call)
    count = len(launches())
    for name, make in REFUSED.items():
        assert [refusal(make()) for _ in range(2)] == [wanted[name]] * 2
    assert len(launches()) == count


@in_stand_in()
def test_a_known_call_moves_the_version_of_out_and_runs_on_the_current_stream():
    install()
    out = Tensor(at(3), (96, 80))
    for count in range(1, 5):
        streams[0] = new_stream()
        libgemm.grouped_mm(**rows(out=out))
        assert (out.version, launches()[-1]["stream"]) == (count, hex(streams[0]))


@needs(90)
@in_stand_in()
def test_a_known_call_that_turns_an_operand_has_a_workspace_of_its_own():
    """B's columns are cut and contiguous: it is copied first, where later calls' other addresses say."""
    install()
    a, out = Tensor(at(0), (3, 1000, 1024)), Tensor(at(8), (1000, 1536))
    for place in (1, 2, 1, 4):
        libgemm.grouped_mm(a, Tensor(at(place), (1024, 1536)), ends(3), out=out)
    copies = [values(launch) for launch in launches()[::2]]
    spaces = [made.pointer for made in torch.made]
    assert [copy["b_copy"] for copy in copies] == spaces and len(set(spaces)) == 4
    assert [copy["b_ptr"] for copy in copies] == [at(1), at(2), at(1), at(4)]


@needs(90)
@in_stand_in()
def test_a_known_call_has_a_workspace_of_its_own():
    install()
    a, b, out = Tensor(at(0), (1, 32768)), Tensor(at(1), (32768, 64)), Tensor(at(3), (1, 64))
    for _ in range(4):
        libgemm.grouped_gemm_jagged(a, b, ends(3), out=out)
    spaces = [made.pointer for made in torch.made]
    assert [values(launch)["semaphores"] for launch in launches()] == spaces and len(set(spaces)) == 4
