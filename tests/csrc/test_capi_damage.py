"""A library whose bytes changed on the way: no damaged kernel leaves it, none is launched, nor a damaged manifest."""

import hashlib
import random
import shutil

import pytest
from blobs import kernels_at, manifest_at
from calls import Call, launches, log
from libgemm import Error, inspect
from libgemm._library import LIBRARY, ffi, lib, text
from stand_in import in_stand_in

UNSUPPORTED = 2


def flipped(folder, number: int, generator: random.Random):
    """A copy of the library in which one bit of the kernels differs, loaded."""
    path = folder / f"libgemm-{number}.so"
    shutil.copy(LIBRARY, path)
    with path.open("r+b") as file:
        at = generator.choice(kernels_at(LIBRARY))
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << generator.randrange(8)]))
    return ffi.dlopen(str(path))


def test_a_damaged_manifest_is_none(tmp_path):
    """Its bytes as they stand in the library, of which the first are spoilt: no text, rather than some of it."""
    path, whole = tmp_path / "libgemm.so", bytearray(LIBRARY.read_bytes())
    at = manifest_at(LIBRARY).start
    whole[at : at + 64] = b"\xff" * 64
    path.write_bytes(whole)
    damaged, size = ffi.dlopen(str(path)), ffi.new("uint64_t *", 77)
    for _ in range(2):
        assert text(damaged.libgemm_manifest(size)) == "" and size[0] == 0
    assert text(lib.libgemm_manifest(size)) != "" and size[0] > 0


def test_python_says_that_a_manifest_is_damaged(monkeypatch):
    monkeypatch.setattr(inspect, "text", lambda _: "")
    with pytest.raises(Error, match="the manifest is damaged"):
        inspect.manifest()


def read(library, index: int, size: int) -> tuple[int, bytes]:
    buffer = ffi.new("char[]", size)
    return library.libgemm_variant_cubin(index, buffer, size), bytes(ffi.buffer(buffer))


def damaged_of(library) -> list[inspect.Variant]:
    """The variants whose kernels do not come out of it; all others' are what they were."""
    found = []
    for variant in sorted(inspect.variants(), key=lambda v: v.chunk):
        status, cubin = read(library, variant.index, variant.cubin_bytes)
        if status == 0:
            assert hashlib.sha256(cubin).hexdigest() == variant.sha256, variant.name
        else:
            assert status == UNSUPPORTED and "are damaged in this library file" in text(library.libgemm_last_error())
            found.append(variant)
    return found


@pytest.mark.parametrize("seed", range(8))
@in_stand_in()
def test_a_bit_that_changed_is_noticed_before_the_kernel_is_loaded(seed, tmp_path):
    generator, damaged = random.Random(seed), []
    # Some bits matter to no kernel: of the zeros behind a short cubin, of how far back other zeros are copied from.
    for attempt in range(6):
        library = flipped(tmp_path, 10 * seed + attempt, generator)
        if damaged := damaged_of(library):
            break
    assert len({v.chunk for v in damaged}) == 1  # those packed together with it
    for v in damaged:
        if (v.op, v.target, v.a_type) != ("gemm", 90, "bf16"):
            continue
        call = Call(v.op, variant=v.name, trans_a=v.trans_a, trans_b=v.trans_b, lda=96, ldb=80)
        assert library.libgemm_gemm(call.args) == UNSUPPORTED
    assert launches() == [] and log("cuLibraryLoadData") == []
