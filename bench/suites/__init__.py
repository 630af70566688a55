"""The shapes that are measured: the public lists as data, and generators of drawn ones. Measures nothing; no torch."""

from pathlib import Path

SUITES = Path(__file__).resolve().parent
