"""The LZMA decoder alone, under sanitizers: what was packed comes back, damage stays inside the buffers."""

import lzma
import random
import struct

import pytest
from stand_in import run
from test_capi_threads import PROGRAMS, sanitized

from aot.pack import FILTER, compressed
from build.link import CSRC


def samples() -> list[bytes]:
    generator = random.Random(1)
    noise = generator.randbytes(5000)
    words = [generator.randbytes(generator.randint(1, 40)) for _ in range(30)]
    text = b"".join(generator.choice(words) for _ in range(2000))
    plain = [b"", b"a", b"abcd" * 3, bytes(100_000), b"ab" * 40_000, noise, text, text[:70_000] + noise + text]
    plain += [noise[:n] for n in (13, 14, 15, 16, 269, 270, 271, 525)]
    plain += [b"x" * n for n in (1, 2, 3, 9, 10, 17, 18, 273, 274, 275, 529)]  # where a length has other bits
    # Distances of all sizes, and those of the last four matches again; of 16 bytes that differ a little.
    far = b"".join(noise[:n] + bytes(2**n % 70_000) for n in range(1, 21))
    rows = b"".join(noise[16 * (i % 37) : 16 * (i % 37) + 12] + i.to_bytes(4, "little") for i in range(3000))
    return [*plain, far + noise + far[::-1] + far, rows, rows[7:] + text + rows, noise * 3 + bytes(300_000) + noise]


def packed(plain: bytes) -> list[bytes]:
    """As the library's are, and as other encoders would: what they choose among is the decoder's to follow."""
    fast = {**FILTER, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "nice_len": 8, "depth": 1}
    others = [lzma.compress(plain, lzma.FORMAT_RAW, filters=[way]) for way in (fast, {**FILTER, "nice_len": 273})]
    return [compressed(plain), *others]


@pytest.mark.parametrize("sanitizer", ["address,undefined"])
def test_packed_data_comes_back_and_damage_stays_inside(tmp_path, sanitizer):
    sanitized(CSRC, sanitizer, tmp_path / "unpack", CSRC / "launch" / "unpack.c", PROGRAMS / "unpack.c")
    records = [(block, plain) for plain in samples() for block in packed(plain)]
    data = b"".join(struct.pack("<II", len(block), len(plain)) + block + plain for block, plain in records)
    (tmp_path / "records").write_bytes(data)
    done = run(tmp_path / "unpack", tmp_path / "records", driver=False)
    assert done.returncode == 0, done.stdout + done.stderr
    count, refused = map(int, done.stdout.replace(",", "").split()[::2][:2])
    assert count == len(records) and refused > 10_000
