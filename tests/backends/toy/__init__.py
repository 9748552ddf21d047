"""A minimal second backend as an example: it runs planned programs in NumPy on the arena's bytes.

DEVICE is the path of its device file, for `pockengine.compile(..., device=DEVICE)`.
"""

from pathlib import Path

from pockengine.backends.protocol import BackendKind
from pockengine.backends.registry import register
from pockengine.tests.backends.toy.backend import make
from pockengine.tests.backends.toy.session import ToySession

DEVICE = Path(__file__).with_name("toy.toml")

KIND = BackendKind(make, ToySession)
register("toy", KIND)
