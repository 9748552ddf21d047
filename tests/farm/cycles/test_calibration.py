"""Published figures that measure the cycle model's error, and the command that prints them."""

from dataclasses import astuple, replace

import pytest
from click.testing import CliRunner

from pockengine.farm.cli import cycles as command
from pockengine.farm.cycles import calibration
from pockengine.farm.cycles.calibration import Figure, figures, held_out_error
from pockengine.farm.cycles.core import THUMB, modelled_devices
from pockengine.farm.cycles.modelled import Cycles, modelled

FIGURE = Figure("rpi4", "a net", "held-out", 100.0, 90.0, "where it was published")


def test_every_figure_has_a_source_and_a_modelled_board() -> None:
    for figure in figures():
        assert figure.source
        assert figure.device in (*modelled_devices(), *modelled_devices(THUMB))
        assert min(figure.measured_ms, figure.modelled_ms) > 0


def test_model_fits_within_a_tenth() -> None:
    fitted = [figure for figure in figures() if figure.half == "fit"]

    assert {figure.device for figure in fitted} == set(modelled_devices())
    assert all(abs(figure.error) < 0.1 for figure in fitted)


def test_a_microcontroller_is_modelled_from_documents_alone() -> None:
    assert modelled_devices(THUMB) == ("stm32f746",)
    figure_halves = {figure.half for figure in figures() if figure.device == "stm32f746"}
    assert figure_halves == {"held-out"}


def test_error_is_the_mean_of_the_held_out_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        FIGURE,
        replace(FIGURE, modelled_ms=130.0),
        replace(FIGURE, half="fit", modelled_ms=500.0),
        replace(FIGURE, device="rpi5", modelled_ms=500.0),
        replace(FIGURE, kernel="c", modelled_ms=500.0),
    )
    monkeypatch.setattr(calibration, "figures", lambda: rows)

    assert held_out_error("rpi4") == pytest.approx(0.2)
    assert held_out_error("host") is None


def test_modelled_time_is_all_cycles_at_the_board_clock() -> None:
    region = modelled(
        "rpi4", 1000, Cycles(core=1_000_000, cache=1, dram=499_997, branch=1, fetch=1)
    )

    assert region.milliseconds == pytest.approx(1.0)
    assert region.error == held_out_error("rpi4")


def test_command_prints_regions_with_their_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    region = modelled("rpi4", 2_000_000, Cycles(1_000_000, 200_000, 250_000, 30_000, 20_000))
    monkeypatch.setattr(command, "model_regions", lambda device, program: (region,))

    shown = CliRunner().invoke(command.cycles, ["program", "--steps", "2"]).output

    assert all(part in shown for part in ("2.00", "1.00", "0.20", "0.25", "0.03", "0.02"))
    assert "not measured" in shown
    assert sum(astuple(region.cycles)) == 1_500_000


def test_command_prints_the_calibration() -> None:
    shown = CliRunner().invoke(command.cycles, ["--calibration"]).output

    assert "measured ms" in shown
    assert "STREAM copy" in shown
    assert "held-out" in shown


def test_command_compares_a_net_with_its_published_time(monkeypatch: pytest.MonkeyPatch) -> None:
    region = modelled("rpi4", 2_000_000, Cycles(150_000_000, 0, 0, branch=0, fetch=0))
    monkeypatch.setattr(command, "model_inference", lambda device, net: region)

    shown = CliRunner().invoke(command.cycles, ["--net", "ssdlite_mobilenet_v2"]).output

    assert "210.5" in shown
    assert shown.count("100") >= 2  # 150 M cycles at 1.5 GHz, in both tables


def test_command_refuses_nets_without_a_published_time() -> None:
    refused = CliRunner().invoke(command.cycles, ["--device", "rpi5", "--net", "vgg"])

    assert refused.exit_code == 1
    assert "no public time of vgg on rpi5; there are ssdlite_mobilenet_v2 on rpi4" in refused.output


def test_command_requires_an_argument() -> None:
    refused = CliRunner().invoke(command.cycles, [])

    assert refused.exit_code == 2
    assert "give a COMMAND" in refused.output
