"""What the NVIDIA driver of this machine calls itself, for reports. A leaf."""

import subprocess


def driver() -> str:
    """Its version, such as 580.159.04; "unknown" where nvidia-smi does not say."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"
