"""Small programs that write in place through views: rows, columns, slices, parts, other shapes.

Each takes y, which needs a gradient, and x, which does not, both (4, 6).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}


def program(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Register a program in the table."""
    PROGRAMS[function.__name__] = function
    return function


@program
def rows_of_a_constant(y: Tensor, x: Tensor) -> Tensor:
    m = torch.zeros(4, 6)
    m[:2] = 1.0
    return y * m


@program
def rows_in_a_loop(y: Tensor, x: Tensor) -> Tensor:
    o = torch.zeros(4, 6)
    for t in range(4):
        o[t] = y[t] * 2
    return o


@program
def label_shift(y: Tensor, x: Tensor) -> Tensor:
    s = torch.zeros_like(y)
    s[:, 1:] = y[:, :-1].clone()
    s[:, 0] = 3.0
    return s


@program
def add_to_a_column(y: Tensor, x: Tensor) -> Tensor:
    z = y.clone()
    z[..., 0] += y[:, 1]
    return z * y


@program
def shifted_window_mask(y: Tensor, x: Tensor) -> Tensor:
    m = y.new_zeros((4, 6))
    for c, (start, stop) in enumerate(((0, -2), (-2, -1), (-1, None))):
        m[start:stop] = c
    m = m.view(2, 2, 6).permute(1, 0, 2).reshape(2, 12)
    d = m.unsqueeze(1) - m.unsqueeze(2)
    d = d.masked_fill(d != 0, -100.0).masked_fill(d == 0, 0.0)
    return d.sum() * y


@program
def masked_fill_of_rows(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[1:3].masked_fill_(x[1:3] > 0, -5.0)
    return z


@program
def chunks_of_a_constant(y: Tensor, x: Tensor) -> Tensor:
    z = torch.ones(4, 6)
    a, b = z.chunk(2, 1)
    a.mul_(3)
    b.add_(x[:, 3:])
    return z * y


@program
def add_to_the_diagonal(y: Tensor, x: Tensor) -> Tensor:
    z = y @ y.t()
    z.diagonal().add_(y[:, 0])
    return z


@program
def columns_by_transposing(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.t()[2] = y[:, 0]
    z.transpose(0, 1)[1:3] *= 2
    return z


@program
def older_views_see_the_write(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    v = z[1]
    w = z.view(-1)
    z[1, 2] = 7.0
    return torch.cat([v, w])


@program
def writes_through_base_and_views(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    v = z[:, 1:4]
    u = v[1:]
    z.mul_(3)
    u[0] = y[0, :3]
    v += 1
    return z.sum() + u.sum() * 2 + (v * y[:, :3]).sum()


@program
def strided_rows(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[::2] = 0
    z[:, 1::2] += y[:, ::2]
    return z


@program
def negative_indices(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[-1] = 1
    z[:, -2:] = y[:, :2]
    return z


@program
def parts_of_a_split(y: Tensor, x: Tensor) -> Tensor:
    z = torch.zeros(4, 6)
    for i, p in enumerate(z.split([1, 2, 3], 1)):
        p.fill_(i + 1.0)
    return z * y


@program
def reshaping_in_place(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.unsqueeze_(0)
    z[0, 1] = 2
    z.squeeze_(0)
    z.t_()
    z[0] = 1
    return z


@program
def swap_rows(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    t = z[0].clone()
    z[0] = z[1]
    z[1] = t
    return z


@program
def rotary_halves(y: Tensor, x: Tensor) -> Tensor:
    o = torch.empty_like(y)
    o[..., 0::2] = -y[..., 1::2]
    o[..., 1::2] = y[..., 0::2]
    return o


@program
def recurrence_over_columns(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    for i in range(1, 6):
        z[:, i] = z[:, i] + z[:, i - 1] * 0.5
    return z


@program
def windows_without_overlap(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.unfold(1, 2, 2).mul_(2)
    return z


@program
def narrow_and_select(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.narrow(1, 2, 2).copy_(y[:, :2])
    z.select(0, 1).div_(2)
    return z


@program
def flatten_reshape_view(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.flatten()[3] = 1
    z.reshape(6, 4)[1] = 0
    z.view(2, 2, 6)[1, :, 0] = 5
    return z


@program
def permuted_and_computed(y: Tensor, x: Tensor) -> Tensor:
    z = y.view(2, 2, 6).permute(2, 0, 1)
    z = z * 1
    z[1] = 0
    z[:, 0] += 1
    return z


@program
def permuted_view(y: Tensor, x: Tensor) -> Tensor:
    z = (y * 1).view(2, 2, 6)
    z.permute(2, 0, 1)[1] = 0
    z.permute(2, 0, 1)[:, 0, :].add_(z[1].t())
    return z


@program
def views_of_views_of_a_constant(y: Tensor, x: Tensor) -> Tensor:
    z = torch.zeros(4, 6)
    v = z[0]
    w = v[2:]
    w.add_(1)
    v.mul_(3)
    z.add_(1)
    return y * z + w.sum() + v.sum()


@program
def list_of_rows(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    a = [z[i] for i in range(4)]
    a[2] += a[1]
    a[1] *= 2
    return torch.stack(a) + z


@program
def unsqueezed_and_expanded(y: Tensor, x: Tensor) -> Tensor:
    z = (y * 1).unsqueeze(1)
    z.squeeze(1)[0] = 2
    z.expand(4, 1, 6)[1].mul_(3)
    return z


@program
def moved_dimensions(y: Tensor, x: Tensor) -> Tensor:
    z = (y * 1).view(2, 2, 6)
    z.movedim(2, 0)[0] = 4
    z.swapaxes(0, 1)[1] -= 1
    return z


@program
def rows_of_each_other(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[0] = torch.where(x[0] > 0, z[1], z[0])
    z[1, :] = z[0, :].detach()
    return z


@program
def halves_of_a_concatenation(y: Tensor, x: Tensor) -> Tensor:
    z = torch.cat([y, y], 1)
    z[:, 6:] = 0
    z[:, :6] += z[:, 6:] + 1
    return z


@program
def picture_of_a_convolution(y: Tensor, x: Tensor) -> Tensor:
    z = functional.conv2d(y.view(1, 1, 4, 6), torch.ones(2, 1, 3, 3), padding=1)
    z[:, 0] = 0
    z[:, :, 1:3, 2] = y[1:3, 0]
    return functional.relu_(z)


@program
def padded_sequences(y: Tensor, x: Tensor) -> Tensor:
    out = y.new_full((3, 4, 6), -1.0)
    for i in range(3):
        out[i, : 4 - i] = y[: 4 - i]
    return out


@program
def grid_of_coordinates(y: Tensor, x: Tensor) -> Tensor:
    g = torch.zeros(2, 2, 2)
    g[..., 0] = torch.arange(2.0)[:, None]
    g[..., 1] = torch.arange(2.0)
    return g.sum() * y


@program
def halves_at_once(y: Tensor, x: Tensor) -> Tensor:
    z = y.clone()
    z[:, :3], z[:, 3:] = (-y[:, 3:], y[:, :3])
    return z


@program
def nested_views(y: Tensor, x: Tensor) -> Tensor:
    z = torch.zeros(2, 4, 6)
    z[0][1][2] = y[0, 0]
    z[1].t()[3].add_(y[:, 1])
    z[1][1:][:, ::2] = y[1:, ::2]
    return z


@program
def border_of_a_padding(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    p = functional.pad(z, (1, 1))
    p[:, 0] = z[:, 0]
    return p * p
