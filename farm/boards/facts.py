"""Facts of a board, collected by one POSIX shell script.

It runs when a board is added, before a job, and around a measurement. Unavailable facts are
omitted: an emulated board has no governor, a Mac no /proc.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pockengine.devices import known_devices, load_device
from pockengine.errors import FarmError
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.transport import Transport

# "$1" is the parent of /sys and /proc (empty, or a test's folder), "$2" the folder of the jobs.
# Prefers shell builtins: starting a process is slow on an emulated board.
SCRIPT = r"""
say() { [ -n "$2" ] && printf '%s %s\n' "$1" "$2"; }
file() { [ -r "$2" ] && read -r value < "$2" && say "$1" "$value"; }
root=$1 work=$2
set -- $(uname -s -r -m)
say system "$1"; say kernel "$2"; say machine "$3"
say clock "$(date +%s)"
say cores "$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null)"
df -P -k "$work" 2>/dev/null | { read -r _; read -r _ _ _ free _; say disk_kb "$free"; }
i8mm=
[ -r "$root/proc/cpuinfo" ] && while IFS=: read -r key value; do
  case $key in
    Features*) case " $value " in *' i8mm '*) i8mm=' i8mm';; esac;;
    'model name'*|'CPU part'*) say cpu "${key%%	*}$value"; break;;
  esac
done < "$root/proc/cpuinfo"
frequency=$root/sys/devices/system/cpu/cpu0/cpufreq android=
if command -v getprop > /dev/null; then
  android="Android $(getprop ro.product.cpu.abi)$i8mm, $(getprop ro.build.version.release)"
  say model "$(getprop ro.product.manufacturer) $(getprop ro.product.model), $android"
  for frequency in "$root"/sys/devices/system/cpu/cpufreq/policy*; do :; done  # the fastest cores
  dumpsys battery 2>/dev/null | while IFS=: read -r key value; do
    case $key in
      *powered) case $value in *true) say plugged 1;; esac;;
      *level) say battery "$value";;
      *temperature) say millidegrees "$((value * 100))";;
    esac
  done
  dumpsys thermalservice 2>/dev/null | while IFS=: read -r key value; do
    case $key in 'Thermal Status') say thermal "$value";; esac
  done
fi
[ -r "$root/proc/device-tree/model" ] &&
  say model "$(tr -d '\000' < "$root/proc/device-tree/model")"
[ -r "$root/proc/meminfo" ] && while read -r key value _; do
  case $key in MemTotal:) say memory_kb "$value";; MemAvailable:) say free_kb "$value";; esac
done < "$root/proc/meminfo"
file boot "$root/proc/sys/kernel/random/boot_id"
[ -r "$root/proc/loadavg" ] && read -r load _ < "$root/proc/loadavg" && say load "$load"
if [ "$1" = Darwin ]; then
  say cpu "$(sysctl -n machdep.cpu.brand_string)"
  say memory_kb "$(($(sysctl -n hw.memsize) / 1024))"
fi
file governor "$frequency/scaling_governor"
file khz "$frequency/scaling_cur_freq"
file max_khz "$frequency/scaling_max_freq"
for zone in "$root"/sys/class/thermal/thermal_zone*; do
  if [ -n "$android" ]; then  # a phone has zones of regulators and limits too
    case $(cat "$zone/type" 2>/dev/null) in *[cCgG][pP][uU]*|*soc*|*skin*) ;; *) continue;; esac
  fi
  file millidegrees "$zone/temp"
done
for count in "$root"/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count; do
  file throttled "$count"
done
command -v vcgencmd > /dev/null && flags=$(vcgencmd get_throttled) && say pi_throttled "${flags#*=}"
exit 0
"""

LEAST_DISK = 64 << 20
CLOCK_S = 300.0
"""Maximum difference of a board's clock before a warning, in seconds."""

FLAGS = re.compile(r"(0x)?[0-9a-fA-F]{1,16}")
GREATEST = {"millidegrees", "plugged", "thermal"}
"""Of these, several answers are reduced to the maximum; others are added."""
LEAST_BATTERY = 15
"""Percent, below which a phone that is not charging slows down to save energy."""


@dataclass(frozen=True)
class BoardFacts:
    """Facts about a board; None or empty if unavailable. Times are seconds since 1970."""

    system: str
    machine: str
    kernel: str
    model: str
    cpu: str
    boot: str
    governor: str
    cores: int | None
    memory_bytes: int | None
    free_bytes: int | None
    disk_bytes: int | None
    clock_s: int | None
    load: float | None
    frequency_mhz: float | None
    max_frequency_mhz: float | None
    temperature_c: float | None
    throttled: int | None  # since boot
    flags: int | None  # a Raspberry Pi's bits for present and past throttling
    battery: int | None = None  # of a phone, in percent
    plugged: bool = False
    thermal: int | None = None  # Android's thermal status: 0 without throttling

    def describe(self) -> list[str]:
        """Return a line per known fact, for display."""
        mb = 1 << 20
        known = {
            "model": self.model or None,
            "CPU": self.cpu or self.machine,
            "cores": self.cores,
            "memory": self.memory_bytes and f"{self.memory_bytes / mb:,.0f} MB",
            "free disk": self.disk_bytes and f"{self.disk_bytes / mb:,.0f} MB",
            "kernel": f"{self.system} {self.kernel}",
            "governor": self.governor or None,
            "frequency": self.frequency_mhz and f"{self.frequency_mhz:,.0f} MHz",
            "temperature": None if self.temperature_c is None else f"{self.temperature_c:.1f} °C",
            "battery": None if self.battery is None else f"{self.battery} %{self._charging}",
        }
        return [f"{name}: {value}" for name, value in known.items() if value is not None]

    @property
    def weak(self) -> bool:
        """Whether it is a phone in power-saving mode."""
        return self.battery is not None and self.battery < LEAST_BATTERY and not self.plugged

    @property
    def _charging(self) -> str:
        return ", plugged in" if self.plugged else ""

    def warnings(self, now: float) -> list[str]:
        """Return problems for jobs, each with its fix; `now` is this machine's clock."""
        found = []
        if self.disk_bytes is not None and self.disk_bytes < LEAST_DISK:
            found.append(
                f"free disk: {self.disk_bytes >> 20} MB in the work folder, where programs and "
                f"weights go: free {LEAST_DISK >> 20} MB there, or give the board another workdir"
            )
        if self.clock_s is not None and abs(self.clock_s - now) > CLOCK_S:
            where = "behind" if self.clock_s < now else "ahead of"
            found.append(
                f"clock: {abs(self.clock_s - now):,.0f} s {where} this machine's: set it, for "
                "example by `timedatectl set-ntp true` there"
            )
        if self.weak:
            found.append(f"battery: {self.battery} %: plug it in, or it slows down")
        return found


def ask(transport: Transport, root: str = "") -> BoardFacts:
    """Query a board; FarmError for an invalid reply. `root` is prepended to /proc and /sys."""
    argv = ["sh", "-c", SCRIPT, "facts", root, transport.workdir]
    result = transport.run(argv, timeout_s=30, limits=CommandLimits(1 << 20))
    if not result.ok:
        raise FarmError(f"{transport.board}: cannot say what it is: {result.describe()}")
    return parse(result.stdout.decode(errors="replace"), transport.board)


def parse(text: str, board: str) -> BoardFacts:
    """Parse the script's lines; FarmError for an invalid number."""
    values = _collect(text.splitlines(), board)

    def number(name: str, scale: float = 1.0) -> float | None:
        return values[name] * scale if name in values else None  # type: ignore[operator]

    def whole(name: str, scale: int = 1) -> int | None:
        return int(values[name]) * scale if name in values else None

    texts = {name: str(values.get(name, "")) for name in TEXTS}
    flags = texts.pop("pi_throttled")
    return BoardFacts(
        **texts,
        cores=whole("cores"),
        memory_bytes=whole("memory_kb", 1024),
        free_bytes=whole("free_kb", 1024),
        disk_bytes=whole("disk_kb", 1024),
        clock_s=whole("clock"),
        load=number("load"),
        frequency_mhz=number("khz", 1e-3),
        max_frequency_mhz=number("max_khz", 1e-3),
        temperature_c=number("millidegrees", 1e-3),
        throttled=whole("throttled"),
        flags=_flags(flags, board) if flags else None,
        battery=whole("battery"),
        plugged=bool(whole("plugged")),
        thermal=whole("thermal"),
    )


TEXTS = ("system", "machine", "kernel", "model", "cpu", "boot", "governor", "pi_throttled")


def _collect(lines: Iterable[str], board: str) -> Mapping[str, str | float]:
    """Return one value per name.

    Several temperatures give their maximum, several counts their sum.
    """
    values: dict[str, str | float] = {}
    for line in lines:
        name, _, text = line.partition(" ")
        if name in TEXTS:
            values.setdefault(name, text.strip())
            continue
        number = _number(text)
        if number is None:
            raise FarmError(f"{board}: says {line[:80]!r}, which is no number")
        before = values.get(name)
        if isinstance(before, float):
            number = max(before, number) if name in GREATEST else before + number
        values[name] = number
    return values


def _number(text: str) -> float | None:
    """Parse a number; it must be finite and fit in 64 bits."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1 << 63 else None


def _flags(text: str, board: str) -> int:
    if not FLAGS.fullmatch(text):
        raise FarmError(f"{board}: says it throttles {text[:40]!r}, not a number")
    return int(text, 16)


def recognize(facts: BoardFacts) -> str | None:
    """Return the device that matches a board's description; None if no device file matches."""
    description = f"{facts.model}\n{facts.cpu}"
    for name in known_devices():
        if any(word in description for word in load_device(name).recognize):
            return name
    return None
