"""How windows slide in one, two or three dimensions, as ATen operators write their arguments."""

from collections.abc import Sequence

from pockengine.frontends.emit.nn import Window, same_padding
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.registry import AtenContext


def each(sizes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Read one size for every direction, or one each."""
    return (sizes[0],) * rank if len(sizes) == 1 else tuple(sizes)


def both_sides(padding: Sequence[int], rank: int) -> tuple[int, ...]:
    """Read a padding that is the same on both sides of each direction."""
    return tuple(size for size in each(padding, rank) for _ in range(2))


def batched(ctx: AtenContext, x: Tensor, rank: int) -> Tensor:
    """Add a batch of one to a single picture or volume (C, ...) of this rank."""
    return x if x.rank == rank + 2 else reshape(ctx.g, x, (1, *x.shape))


def as_pictures(ctx: AtenContext, x: Tensor) -> Tensor:
    """Convert lines (N, C, L), or (C, L), to pictures of height 1."""
    return reshape(ctx.g, x, (x.shape[0] if x.rank == 3 else 1, x.shape[-2], 1, x.shape[-1]))


def conv_window(
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
) -> Window:
    """Return the window of a convolution; padding is sizes, "same" or "valid"."""
    rank = len(kernel)
    gaps = each(dilation, rank)
    if padding == "same":
        sides = same_padding(tuple(kernel), gaps)
    else:
        sides = both_sides((0,) if isinstance(padding, str) else padding, rank)
    return Window(tuple(kernel), each(stride, rank), sides, gaps)


def pool_window(
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    rank: int = 2,
) -> Window:
    """Return the window of a pool; the default stride is its size."""
    kernel = each(kernel_size, rank)
    steps = each(stride, rank) if stride else kernel
    return Window(kernel, steps, both_sides(padding, rank), each(dilation, rank))


def max_window(x: Tensor, rank: int, ceil_mode: bool, **sizes: Sequence[int]) -> Window:
    """Return the window of a maximum of pictures or volumes, which may end outside."""
    window = pool_window(rank=rank, **sizes)
    return window.ceiled(x.shape[-rank:]) if ceil_mode else window
