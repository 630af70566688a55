"""The fast set for Blackwell, in Triton: dense products through tensor descriptors (TMA)."""
