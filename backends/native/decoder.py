"""Where stb_image.h lies, with which the runner decodes pictures.

It is not in this repository: Debian has it (libstb-dev), and a wheel brings the one that it was
built beside. Without it runners are built all the same, and refuse pictures.
"""

from pathlib import Path

HEADER = "stb_image.h"
PLACES = (Path(__file__).parent / "stb", Path("/usr/include/stb"), Path("/usr/local/include/stb"))
INSTALL = "apt-get install libstb-dev"


def find_decoder() -> Path | None:
    """Return the header, or None where there is none."""
    return next((place / HEADER for place in PLACES if (place / HEADER).is_file()), None)
