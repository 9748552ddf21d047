"""Complex numbers as pairs, and Fourier transforms: results and gradients equal PyTorch's."""

from collections.abc import Callable

import pytest
import torch
from torch import fft, linalg, nn

from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function
from pockengine.tests.frontends.torch.compiled import check_steps
from pockengine.tests.frontends.torch.gradients import check_function

LINES = (2, 6, 8)

WINDOW = torch.hann_window(6)

TURNS = torch.polar(torch.ones(6, 4), torch.arange(24.0).reshape(6, 4))


def pair(x: torch.Tensor) -> torch.Tensor:
    """View (2, 6, 8) real numbers as (2, 6, 4) complex numbers."""
    return torch.view_as_complex(x.reshape(2, 6, 4, 2))


def parts(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z)


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x[0], 6, 2, window=WINDOW, return_complex=True)


PLACES = torch.block_diag(
    torch.tensor([[1.0, -2.0], [2.0, 1.0]]), torch.diag(torch.tensor([4.0, 6]))
)
"""A matrix with the eigenvalues 1 + 2i, 1 - 2i, 4 and 6."""


def separated(x: torch.Tensor) -> torch.Tensor:
    """Turn (2, 4, 4) numbers into matrices with well-separated eigenvalues."""
    return x / 8 + PLACES


def rebuilt(a: torch.Tensor) -> torch.Tensor:
    values, vectors = linalg.eig(a)
    return parts(vectors @ torch.diag_embed(values) @ vectors.mH)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rotate": lambda x: parts(pair(x) * TURNS).flatten(2),
    "arithmetic": lambda x: parts((pair(x) + 2 - pair(x).conj() * 1j) / (pair(x) + 3)),
    "real and complex numbers": lambda x: parts(x[..., :4] * pair(x) / 2 + (1 - 0.5j) - x[..., 4:]),
    "powers": lambda x: parts(pair(x) ** 2 + (pair(x) + 4) ** 1.5 + 1 / (pair(x) + 4)),
    "magnitude and angle": lambda x: pair(x).abs() + pair(x).angle() * 0.1,
    "magnitude of zero": lambda x: pair(x.clamp(min=0)).abs(),
    "exponential": lambda x: torch.exp(pair(x)).real + torch.polar(x.abs(), x).imag[..., :4],
    "matrices": lambda x: parts(pair(x) @ pair(x).mT + TURNS @ torch.complex(x, -x)[:, :4, :6]),
    "moved": lambda x: parts(torch.cat([pair(x), x[..., :4].to(torch.complex64)]).flip(1)[1:, ::2]),
    "chosen and summed": lambda x: parts(torch.where(x[..., :4] > 0, pair(x), 0 * pair(x)).sum(1)),
    "rfft": lambda x: fft.rfft(x).abs(),
    "rfft of an odd length": lambda x: parts(fft.rfft(x, n=7, norm="ortho")),
    "irfft": lambda x: fft.irfft(fft.rfft(x, n=7) * (2 - 1j), n=7, norm="forward"),
    "irfft of other sizes": lambda x: fft.irfft(pair(x), n=5),
    "rfft2": lambda x: fft.irfft2(fft.rfft2(x) * fft.rfft2(x.flip(0))),
    "fft": lambda x: parts(fft.ifft(fft.fft(pair(x)) * TURNS, dim=1)),
    "mixing": lambda x: fft.fftn(x, dim=(1, 2)).real,
    "shifted": lambda x: fft.fftshift(fft.fft(x, norm="ortho")).imag,
    "hfft": lambda x: fft.hfft(pair(x), n=7),
    "stft": lambda x: spectrum(x).abs(),
    "istft": lambda x: torch.istft(spectrum(x), 6, 2, window=WINDOW),
    "eigenvalues": lambda x: linalg.eigvals(separated(x[:, :4, :4])).abs().sort()[0],
    "eigenvalues of complex matrices": lambda x: (
        linalg.eigvals(separated(pair(x)[:, :4])).abs().sort()[0]
    ),
    "eigenvectors": lambda x: rebuilt(separated(x[:, :4, :4])),
    "eigenvectors of complex matrices": lambda x: rebuilt(separated(pair(x)[:, :4])),
    "equations": lambda x: parts(
        linalg.solve(separated(pair(x)[:, :4]), pair(x)[:, 2:5].mT)
        + linalg.solve(separated(pair(x)[:, :4]), pair(x)[0, :3], left=False).mT
        + linalg.solve(separated(pair(x)[:, :4]), pair(x)[:, 0])[..., None]
    ),
    "inverses": lambda x: parts(
        linalg.inv(separated(pair(x)[:, :4])) @ torch.inverse(TURNS[:4] * 2)
    ),
    "strided view": lambda x: x.as_strided((3, 4), (5, 2), 3),
    "overlapping strides": lambda x: x.contiguous().as_strided((5, 4), (2, 1)).square(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_numbers_and_their_gradients_equal_pytorch(name: str) -> None:
    check_function(FUNCTIONS[name], LINES)


def test_a_net_on_spectra_trains_in_c_as_in_pytorch() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4, 1))
            self.classes = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = torch.stft(x, 6, 2, window=WINDOW, return_complex=True)
            turned = z * torch.polar(self.scale, self.scale)
            return self.classes((turned.abs() ** 2 + turned.real).mean(-1))

    check_steps(Net(), [(torch.randn(5, 16), torch.tensor([0, 1, 2, 1, 0]))] * 3, 0.1, resume=False)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: pair(x), ["output", "view_as_real"]),
        (lambda x: parts(pair(x).mul_(2)), ["aten.mul_.Tensor", "in place"]),
        (lambda x: parts(torch.asin(pair(x))), ["asin.default", "no rule"]),
        (lambda x: fft.rfft(x.repeat(1, 1, 300)).abs(), ["2400 points", "2048", "stft"]),
        (lambda x: x[..., 1:].as_strided((3, 4), (1, 1)), ["as_strided", ".contiguous()"]),
    ],
)
def test_unsupported_operators_are_reported(
    function: Callable[[torch.Tensor], torch.Tensor], words: list[str]
) -> None:
    with pytest.raises(ImportModelError) as caught:
        from_torch(Function(function), (torch.randn(LINES),))
    for word in words:
        assert word in str(caught.value)
