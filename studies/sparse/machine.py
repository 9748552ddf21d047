"""Description of this machine, on which the times in the tables were measured."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return processor, cores and system."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
