"""Find stb_image.h, with which the runner decodes images.

It is not in this repository: Debian has it (libstb-dev), and a wheel includes the one from its
build machine. Without it runners are built without a decoder, and refuse images.
"""

from pathlib import Path

HEADER = "stb_image.h"
PLACES = (Path(__file__).parent / "stb", Path("/usr/include/stb"), Path("/usr/local/include/stb"))
INSTALL = "apt-get install libstb-dev"


def find_decoder() -> Path | None:
    """Return the header's path; None if there is none."""
    return next((place / HEADER for place in PLACES if (place / HEADER).is_file()), None)
