"""The model of a Cortex-M7 on kernels with documented cycles, and its decoder."""

import subprocess
import sys
from pathlib import Path

import pytest

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.cycles import modelled
from pockengine.farm.cycles.firmware import model_firmware
from pockengine.farm.cycles.modelled import Modelled
from pockengine.farm.firmware.link import link_files

HERE = Path(__file__).parent
DEVICE, ROUNDS = "stm32f746", 1000
KERNELS = (
    *("accumulate", "multiply in turn", "independent", "shifted", "beside", "fused"),
    *("chase", "read flash", "unpredictable"),
)


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Modelled]:
    """Return the second run of each kernel."""
    folder = tmp_path_factory.mktemp("firmware")
    source = [HERE / "thumb_kernels.c"]
    firmware = link_files("kernels", load_device(DEVICE), source, includes=[], folder=folder)
    found = model_firmware(DEVICE, firmware.path, folder)
    return dict(zip(KERNELS, found[len(KERNELS) :], strict=True))


@pytest.mark.parametrize(
    ("kernel", "cycles"),
    [
        ("accumulate", 16 * 1 + 1),  # an accumulator is read a cycle late
        ("multiply in turn", 16 * 2),
        ("independent", 16 / 2 + 2),  # two at once
        ("shifted", 16 + 1),  # one shifter
        ("beside", 16 + 2),  # an addition starts with each multiply-add
        ("fused", 16 * 3),
        ("chase", 16 * 2),  # load-use latency of an address
    ],
)
def test_kernels_take_the_documented_cycles(
    regions: dict[str, Modelled], kernel: str, cycles: float
) -> None:
    """The loop's subtraction and branch take a cycle each, unless they start beside others."""
    assert regions[kernel].cycles.total / ROUNDS == pytest.approx(cycles, abs=0.1)


def test_lines_of_flash_arrive_at_the_speed_of_the_bus(regions: dict[str, Modelled]) -> None:
    cycles = regions["read flash"].cycles

    assert cycles.total / ROUNDS == pytest.approx(15, abs=0.5)
    assert cycles.dram > 0.6 * cycles.total


def test_random_branches_cost_half_a_penalty_each(regions: dict[str, Modelled]) -> None:
    assert regions["unpredictable"].cycles.branch / ROUNDS == pytest.approx(6 / 2, abs=0.6)


DECODED = {
    "6808": "load: @1 -> 0",  # ldr r0, [r1]
    "5c53": "load_small: @2 @1 -> 3",  # ldrb r3, [r2, r1]
    "b580": "store_multiple: >7 >14 @13 -> 13",  # push {r7, lr}
    "bd80": "load_multiple: @13 -> 7 13",  # pop {r7, pc}
    "c902": "load_multiple: @1 -> 1 base 1",  # ldm r1!, {r1}
    "4283": "alu:  3  0 -> 48",  # cmp r3, r0
    "d0f4": "branch:  48 ->",  # beq
    "4770": "branch:  14 ->",  # bx lr
    "8705fb16": "mac:  6  5 ^8 -> 7",  # smlabb r7, r6, r5, r8
    "2700fb27": "mac:  7  0 ^2 -> 7",  # smlad r7, r7, r0, r2
    "f701fb03": "mul:  3  1 -> 7",  # mul r7, r3, r1
    "8500fba4": "mul:  4  0 -> 8 5",  # umull r8, r5, r4, r0
    "6503fbe4": "mac:  4  3 ^6 ^5 -> 6 5",  # umlal r6, r5, r4, r3
    "f3f2fbb1": "div:  1  2 -> 3",  # udiv r3, r1, r2
    "f693fa2f": "extend:  3 -> 6",  # sxtb16 r6, r3, ror #8
    "f283fa42": "extend_add:  2 @3 -> 2",  # sxtab r2, r2, r3
    "f60afa96": "simd:  6  10 -> 6",  # sadd16 r6, r6, sl
    "0707f307": "saturate: @7 -> 7",  # ssat r7, #8, r7
    "5b1ff36f": "bitfield_insert:  11 -> 11",  # bfc fp, #20, #12
    "5e0af3c1": "bitfield: @1 -> 14",  # ubfx lr, r1, #20, #11
    "4523eac6": "pack:  6 @3 -> 5",  # pkhtb r5, r6, r3, asr #16
    "0c01e9cd": "store_double: >0 >12 @13 ->",  # strd r0, ip, [sp, #4]
    "2126e9dd": "load_double: @13 -> 2 1",  # ldrd r2, r1, [sp, #152]
    "ef18f800": "store: >14 @0 -> base 0",  # strb lr, [r0, #24]!
    "3018f990": "load_small: @0 -> 3",  # ldrsb r3, [r0, #24]
    "f017e8df": "table_branch: @7 ->",  # tbh [pc, r7, lsl #1]
    "030ceb00": "alu:  0  12 -> 3",  # add.w r3, r0, ip
    "6001eb10": "alu_shift:  0 @1 -> 0 48",  # adds.w r0, r0, r1, lsl #24
    "2733ea4f": "shift:  3 -> 7",  # ror.w r7, r3, #8
    "4a02eea1": "fp_fma: ^24  18  20 -> 24",  # vfma.f32 s8, s2, s4
    "2a02ee21": "fp_mul:  18  20 -> 20",  # vmul.f32 s4, s2, s4 (s20 is 16 + 4)
    "8a6bed9f": "fp_load: -> 32",  # vldr s16, [pc, #428]
    "8b04ed2d": "fp_store_multiple: >32 >33 >34 >35 @13 -> base 13",  # vpush {d8, d9}
    "7a10ee02": "fp_from_general:  7 -> 20",  # vmov s4, r7
    "fa10eef1": "fp_flags:  49 -> 48",  # vmrs apsr_nzcv, fpscr
    "0a40eeb5": "fp_compare:  16  16 -> 49",  # vcmp.f32 s0, #0
    "8000f3af": "nop: ->",
}


def test_instructions_are_decoded(tmp_path: Path) -> None:
    plugin = modelled.PLUGIN
    sources = [HERE / "decoded.c", plugin / "thumb" / "decode.c"]
    program = tmp_path / "decoded"
    command = [sys.executable, "-m", "ziglang", "cc", f"-I{plugin}", *map(str, sources)]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=300)
    done = subprocess.run([program, *DECODED], capture_output=True, text=True, check=True)

    assert dict(zip(DECODED, done.stdout.splitlines(), strict=True)) == DECODED


def test_programs_of_other_devices_are_no_firmware(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="rpi4 runs programs, no firmware"):
        model_firmware("rpi4", tmp_path / "firmware", tmp_path)
