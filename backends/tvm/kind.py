"""The registry's entry of the TVM backend: it imports TVM only on use."""

import re
from pathlib import Path

from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.backends.tuned import read_table
from pockengine.devices.schema import Device
from pockengine.errors import CompileError, MissingPackage
from pockengine.extras import need, pip_command

EXTRA = "tvm"
OLDEST = (0, 27)
"""The release whose ONNX importer was tested, op by op."""


def make(device: Device, options: BackendOptions) -> Backend:
    """Configure the TVM backend for a device."""
    options.refuse_all_but("tvm", frozenset({"tuned"}))
    _need_tvm("the backend tvm")
    from pockengine.backends.tvm.backend import TvmBackend

    return TvmBackend(device, {} if options.tuned is None else _schedules(options.tuned, device))


def _schedules(path: Path | str, device: Device) -> dict[str, str]:
    """Return the winning schedules in a file of `pockengine tune --backend tvm`, by kernel."""
    from pockengine.backends.tvm.tune import UNIT

    table = read_table(Path(path), device)
    if table.unit != UNIT:
        raise CompileError(
            f"tuned plans {path} are in {table.unit}, those of TVM in {UNIT}; run pockengine tune "
            "--backend tvm into a file of its own"
        )
    return {key: row.plan for key, row in table.rows.items() if row.plan != row.default}


def open_artifact(artifact: Artifact, threads: int) -> Session:
    """Open a library built by TVM."""
    _need_tvm("a session of the backend tvm")
    from pockengine.backends.tvm.session import TvmSession

    return TvmSession(artifact, threads)


def _need_tvm(what: str) -> None:
    """Raise MissingPackage if TVM is missing or too old."""
    need(what, EXTRA)
    import tvm

    if tuple(map(int, re.findall(r"\d+", tvm.__version__)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise MissingPackage(
            f"{what} needs apache-tvm {oldest} or newer, not {tvm.__version__}: "
            f"{pip_command(EXTRA)} --upgrade"
        )


KIND = BackendKind(make, open_artifact)
