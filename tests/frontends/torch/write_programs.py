"""Small programs that write in place: whole tensors, masks, indices, detached tensors."""

import torch
from torch import Tensor
from torch.nn import functional

from pockengine.tests.frontends.torch.view_programs import program


@program
def indices_of_a_flat_view(y: Tensor, x: Tensor) -> Tensor:
    z = y * 2
    z.view(-1)[torch.tensor([1, 5, 7])] = y[0, :3]
    return z


@program
def fill_diagonal(y: Tensor, x: Tensor) -> Tensor:
    z = y @ y.t()
    z.fill_diagonal_(0.5)
    return z


@program
def index_put_adding_up(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.index_put_((torch.tensor([0, 2]), torch.tensor([1, 3])), y[3, :2], accumulate=True)
    return z


@program
def copy_a_row_everywhere(y: Tensor, x: Tensor) -> Tensor:
    z = torch.empty(4, 6)
    z.copy_(y[0])
    return z * y


@program
def value_that_others_need(y: Tensor, x: Tensor) -> Tensor:
    a = y * 2
    b = a * 3
    c = b.clone()
    b.add_(1)
    return a * b + c


@program
def copy_of_the_input(y: Tensor, x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = 0
    x.mul_(2)
    return x * y


@program
def without_gradient(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    with torch.no_grad():
        z[0] = 0
    return z * z


@program
def constant_without_gradient(y: Tensor, x: Tensor) -> Tensor:
    m = torch.ones(4, 6)
    with torch.no_grad():
        m[0] = 0
        m[:, 1] = x[:, 2]
        k = (y > 0).float()
        k[1:] += 1
    return m * y * k


@program
def detached_view_sees_the_write(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    d = z.detach()
    z.add_(1)
    return z * d


@program
def number_where_a_mask_holds(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[x > 0] = 0.0
    return z


@program
def boolean_rows(y: Tensor, x: Tensor) -> Tensor:
    m = torch.zeros(4, 6, dtype=torch.bool)
    m[:, 2] = True
    m[1] |= x[1] > 0
    return y.masked_fill(m, 0.0)


@program
def integer_columns(y: Tensor, x: Tensor) -> Tensor:
    p = torch.arange(6).repeat(4, 1)
    p[:, 2:] += 1
    p[0] = (x[0] > 0).long()
    return y * p


@program
def zero_fill_neg_exp(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[1].zero_()
    z[2].fill_(3.0)
    z[:, 0].neg_()
    z[3].exp_()
    return z


@program
def swap_rows_by_indices(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[[0, 1]] = z[[1, 0]]
    return z


@program
def scatter_into_rows(y: Tensor, x: Tensor) -> Tensor:
    z = torch.zeros(4, 6)
    z.scatter_(1, torch.tensor([[0], [2], [5], [1]]), 1.0)
    z[:2].scatter_add_(1, torch.tensor([[0, 0], [2, 1]]), y[:2, :2])
    return z * y


@program
def matrix_product_in_place(y: Tensor, x: Tensor) -> Tensor:
    z = y @ y.t()
    z.addmm_(y, x.t())
    z[0].addcmul_(y[0, :4], y[1, :4], value=2.0)
    z[1].lerp_(y[2, :4], 0.3)
    return z


@program
def result_of_an_in_place_call(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    w = z.add_(1)
    z.mul_(2)
    return w


@program
def constant_mask_of_columns(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[:, torch.tensor([True, False, True, False, False, True])] = 0
    return z


@program
def rows_at_indices(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[torch.tensor([2, 0])] += y[:2]
    z[torch.tensor([1, 1])] = y[2:]
    return z


@program
def one_place_in_each_row(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    i = (x[:, 0] > 0).long()
    z[torch.arange(4), i] = 7.0
    return z


@program
def augmented_assignments(y: Tensor, x: Tensor) -> Tensor:
    y *= 2
    y -= 1
    y /= 3
    y **= 2
    return y


@program
def detached_constant(y: Tensor, x: Tensor) -> Tensor:
    m = torch.zeros(4, 6)
    m.detach()[1] = 1.0
    return m * y


@program
def causal_mask(y: Tensor, x: Tensor) -> Tensor:
    m = torch.full((6, 6), float("-inf")).triu_(1)
    m[0, 1] = 0
    return torch.softmax(y.t() @ y + m, -1)


@program
def comparison_in_place(y: Tensor, x: Tensor) -> Tensor:
    z = x * 1
    z.gt_(0)
    z[0].eq_(1)
    return z * y


@program
def masks_in_place(y: Tensor, x: Tensor) -> Tensor:
    m = x > 0
    m &= x < 1
    m[1] ^= True
    m[:, 2] |= False
    return y * m


@program
def rows_and_columns_of_a_mask(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z[x[:, 0] > 0] = y[0]
    z[:, x[0] > 0] = 1.0
    z[0][x[0] > 0] = 2.0
    return z


@program
def integers_from_floats(y: Tensor, x: Tensor) -> Tensor:
    p = torch.zeros(4, 6, dtype=torch.long)
    p.copy_(x * 3)
    p[0] = x[1]
    return p * y


@program
def token_ids(y: Tensor, x: Tensor) -> Tensor:
    ids = torch.zeros(4, 6, dtype=torch.long)
    ids[:, 1:] = (x[:, :-1] > 0).long()
    ids[:, 0] = 1
    ids.masked_fill_(ids == 0, 2)
    return y * ids


@program
def chain_of_calls(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.clamp_(-0.5, 0.5)
    z.abs_().add_(1.0).log_()
    z.sub_(1).mul_(y).div_(2.0)
    return z


@program
def mask_from_tril(y: Tensor, x: Tensor) -> Tensor:
    m = torch.ones(6, 6, dtype=torch.bool).tril_()
    b = torch.zeros(6, 6)
    b.masked_fill_(m.logical_not(), float("-inf"))
    return torch.softmax(y.t() @ y + b, -1)


@program
def scatter_a_number(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.scatter_(1, (x > 0).long(), -9.0)
    return z


@program
def cumulative_sum(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    z.cumsum_(1)
    z[1].cumsum_(0)
    return z


@program
def clones_do_not_share(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    a = z.clone()
    z += a
    a -= z
    z[0] = a[0]
    a[0] = z[1]
    return a * z


@program
def contiguous_may_share(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    c = z.contiguous()
    c[0] = 0
    t = z.t().contiguous()
    t[0] = 5
    return z + t.t()


@program
def conversion_to_the_same_type(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    c = z.to(torch.float32)
    c[0] = 0
    f = z.float()
    f[1] = 1
    return z


@program
def dropout_that_drops_nothing(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    d = functional.dropout(z, 0.5, training=False)
    d[0] = 0
    e = functional.dropout(z, 0.0, True)
    e[1] = 0
    return z


@program
def clamped_without_gradient(y: Tensor, x: Tensor) -> Tensor:
    z = y * 3
    with torch.no_grad():
        z[0] = 0
        z.view(-1)[7] = 5.0
        z.clamp_(-1, 1)
    return z.sum(0) * 2 + z.mean()


@program
def doubled_where_detached(y: Tensor, x: Tensor) -> Tensor:
    z = y * 2
    d = z.detach()
    d[1:] *= 2
    z.t().detach()[0] = 4
    return z * x + d


@program
def trained_row_of_a_detached_constant(y: Tensor, x: Tensor) -> Tensor:
    m = x * 1
    m.detach()[0] = y[0]
    return m * y


@program
def added_without_gradient(y: Tensor, x: Tensor) -> Tensor:
    z = y * 2
    with torch.no_grad():
        z.add_(1)
    z.mul_(x)
    return z


@program
def detached_sum(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1
    d = z.detach()
    d.add_(1)
    return z * d


@program
def logical_writes_that_autograd_does_not_see(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1.7
    z[:2].logical_not_()
    z[2].logical_and_(x[2] > 0)
    z[3].logical_xor_(y[3])
    return z * x


@program
def steps_written_into_views(y: Tensor, x: Tensor) -> Tensor:
    z = y * 1.7
    z[0].floor_()
    z[1].sign_()
    z[2].gt_(0.2)
    z[3, :3].round_()
    return z * x
