"""The LZ4 decoder alone, under sanitizers: what was packed comes back, damage stays inside the buffers."""

import random
import struct

import lz4.block
import pytest
from stand_in import run
from test_capi_threads import PROGRAMS, sanitized

from build.link import CSRC


def samples() -> list[bytes]:
    generator = random.Random(1)
    noise = generator.randbytes(5000)
    words = [generator.randbytes(generator.randint(1, 40)) for _ in range(30)]
    text = b"".join(generator.choice(words) for _ in range(2000))
    plain = [b"", b"a", b"abcd" * 3, bytes(100_000), b"ab" * 40_000, noise, text, text[:70_000] + noise + text]
    plain += [noise[:n] for n in (13, 14, 15, 16, 269, 270, 271, 525)]  # where a length takes one byte more
    return plain + [b"x" * n for n in (5, 12, 13, 18, 19, 20, 273, 274, 275, 529)]


def packed(plain: bytes) -> list[bytes]:
    ways = ({}, {"mode": "high_compression", "compression": 12}, {"mode": "fast", "acceleration": 50})
    return [lz4.block.compress(plain, store_size=False, **way) for way in ways]


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
