"""An emulated board: QEMU boots it in seconds, SSH connects to it, and no state remains.

The guest has no network except the loopback port of its SSH server. QEMU is killed when this
process or the thread that started it ends, so start boards from a thread that lives as long as they
do.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from pockengine.errors import BoardUnreachable, FarmError
from pockengine.farm.images.image import Image, ensure_image, image_is_built
from pockengine.farm.transports.lifetime import ending_with_us
from pockengine.farm.transports.powered import PoweredTransport
from pockengine.farm.transports.ssh import SshAddress
from pockengine.farm.transports.transport import PowerAction
from pockengine.folders import cache_folder

QEMU = "qemu-system-aarch64"
BOOT_TIMEOUT_S = 240.0  # 2 to 4 s on an idle machine
FIRST_PROBE_S, LONGEST_PROBE_S = 0.4, 10.0
MOST_CONSOLES = 20
PORT_TAKEN = "Could not set up host forwarding rule"
"""QEMU's message for a port that is in use."""
TAIL_LINES = 30  # a kernel panic prints about 20
KERNEL_ARGUMENTS = " ".join(
    (
        "console=ttyAMA0 quiet loglevel=3 panic=-1 random.trust_cpu=on",
        # Boot on one core and bring the others up at the end: with several, each change of page
        # permissions synchronizes all cores, which takes a third of the boot.
        "maxcpus=1",
        # Mitigations of hardware attacks are useless in an emulator. With kernel page-table
        # isolation, QEMU flushes its translations on every system call, and a job takes three times
        # as long.
        "kpti=off mitigations=off",
        # A fifth of the boot: the kernel tests its ciphers, and nothing reads the security modules.
        "cryptomgr.notests initcall_blacklist=crypto_kdf108_init lsm=",
    )
)


@dataclass(frozen=True)
class Guest:
    """The machine that QEMU emulates, in QEMU's terms.

    Files are stored in `disk_mb` of its memory, or on the ext4 image `drive`. Switching the board
    off kills QEMU, like a power cut; only `drive` persists.
    """

    machine: str
    cpu: str
    cores: int
    memory_mb: int
    disk_mb: int
    drive: Path | None = None


@dataclass(frozen=True)
class RunningEmulator:
    """A running emulator: its process, the loopback port of its SSH server, its console's log."""

    board: str
    process: "subprocess.Popen[bytes]"
    port: int
    console: Path

    def failure(self, fact: str) -> BoardUnreachable:
        """Return an error with the last output of the console and the emulator."""
        lines = self.console.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        output = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return BoardUnreachable(
            f"{self.board} {fact}; its console, {self.console}, ends with:\n{output}"
        )


class Emulation:
    """The supply of an emulated board: switching it on starts QEMU, switching it off ends it."""

    def __init__(self, board: str, guest: Guest, image: Image, boot_timeout_s: float) -> None:
        self._board = board
        self._guest = guest
        self._image = image
        self._boot_timeout_s = boot_timeout_s
        self._running = ExitStack()
        self._consoles: list[Path] = []
        self.machine: RunningEmulator | None = None

    @property
    def address(self) -> SshAddress:
        """Address of this boot's SSH server: each boot has its own port."""
        if self.machine is None:
            raise BoardUnreachable(f"{self._board} is switched off; switch it on first")
        return SshAddress(
            board=self._board,
            host="127.0.0.1",
            port=self.machine.port,
            user="root",
            key_file=self._image.keys.client,
            host_key=self._image.keys.host_public,
            workdir="/jobs",
        )

    def power(self, action: PowerAction) -> None:
        """Start or end QEMU; wait for the guest's SSH server."""
        if action in ("off", "cycle"):
            self.close()
        if action in ("on", "cycle") and self.machine is None:
            self._start()

    def _start(self, tries: int = 3) -> None:
        """Boot, with another port if a process took QEMU's before QEMU did."""
        started = running(self._board, self._guest, self._image)
        self.machine = self._running.enter_context(started)
        self._consoles.append(self.machine.console)
        try:
            wait_for_ssh(self.machine, self._boot_timeout_s)
        except BoardUnreachable:
            if tries == 1 or PORT_TAKEN not in self.machine.console.read_text(errors="replace"):
                raise
            self.close()
            self._start(tries - 1)

    def console(self) -> str:
        """Return the console output of all boots so far."""
        texts = (path.read_text(errors="replace") for path in self._consoles if path.exists())
        return "".join(texts)

    def close(self) -> None:
        """End QEMU."""
        self.machine = None
        self._running.close()


def booting() -> str:
    """Describe what `boot` will do."""
    built = "booting its emulator"
    return built if image_is_built() else f"building the emulator's image, once, then {built}"


@contextmanager
def boot(
    board: str,
    guest: Guest,
    boot_timeout_s: float = BOOT_TIMEOUT_S,
    image: Image | None = None,
) -> Iterator[PoweredTransport]:
    """Boot a board and log in; power it off at the end, in any case.

    Raise BoardUnreachable with the end of the console when it does not answer in time.
    """
    with closing(Emulation(board, guest, image or ensure_image(), boot_timeout_s)) as supply:
        supply.power("on")
        with closing(PoweredTransport(supply)) as transport:
            yield transport


@contextmanager
def running(board: str, guest: Guest, image: Image) -> Iterator[RunningEmulator]:
    """Start QEMU; end it when the block ends, without a shutdown: a board must stand power cuts."""
    command = _command(guest, image)
    console = _new_console(board)
    port = _free_port()
    network = f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:22"
    with console.open("wb") as log:
        process = subprocess.Popen(
            ending_with_us([*command, "-netdev", network, "-serial", "stdio"]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # this process handles Ctrl-C
        )
    try:
        yield RunningEmulator(board, process, port, console)
    finally:
        process.kill()
        process.wait()


def wait_for_ssh(machine: RunningEmulator, timeout_s: float) -> None:
    """Wait for the SSH banner: the emulator accepts connections long before the guest listens.

    Each attempt waits longer than the last: the guest starts a process per connection, and a slow
    guest on a busy machine would never answer if attempts came at a fixed rate.
    """
    deadline = time.monotonic() + timeout_s
    patience = FIRST_PROBE_S
    while time.monotonic() < deadline:
        if machine.process.poll() is not None:
            raise machine.failure("stopped while it booted")
        try:
            with socket.create_connection(("127.0.0.1", machine.port), patience) as probe:
                probe.settimeout(min(patience, max(0.1, deadline - time.monotonic())))
                if probe.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.05)
        patience = min(1.5 * patience, LONGEST_PROBE_S)
    raise machine.failure(f"did not answer within {timeout_s:g} s")


def _command(guest: Guest, image: Image) -> list[str]:
    """Return QEMU's command line without network and console."""
    for tool, package in ((QEMU, "qemu-system-arm"), ("setpriv", "util-linux")):
        if shutil.which(tool) is None:
            raise FarmError(f"{tool} is missing; install it with: apt-get install {package}")
    drive = ["-drive", f"if=virtio,format=raw,file={guest.drive}"] if guest.drive else []
    return [
        *[QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"],
        *["-M", guest.machine, "-cpu", guest.cpu, "-smp", str(guest.cores)],
        *["-m", str(guest.memory_mb), "-accel", "tcg,thread=multi"],
        *["-kernel", str(image.kernel), "-initrd", str(image.initrd)],
        *["-append", f"{KERNEL_ARGUMENTS} disk_mb={guest.disk_mb}"],
        *["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci", *drive],
    ]


def _new_console(board: str) -> Path:
    """Return a new log file and forget the oldest ones."""
    folder = cache_folder() / "farm" / "consoles"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"))[:-MOST_CONSOLES]:
        old.unlink(missing_ok=True)
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{board}-{token_hex(3)}.log"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
