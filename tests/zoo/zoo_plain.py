"""Typical handwritten models with torch.nn."""

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pockengine.tests.zoo.zoo_cases import CLASSES, Builder, Case, labels, pictures, words


def sequence(length: int = 6) -> torch.Tensor:
    """Draw random vectors of eight numbers, batch first."""
    return torch.randn(4, length, 8)


def classes(module: nn.Module, **inputs: torch.Tensor) -> Case:
    """Build a case with a cross-entropy loss."""
    first = next(iter(inputs.values()))
    return Case(module.train(), inputs, "cross_entropy", labels(first.shape[0]))


class Encoder(nn.Module):
    """nn.TransformerEncoder with the requested masks."""

    def __init__(self, *, causal: bool = False, padding: bool = False, **settings: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **settings)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, CLASSES)
        self.causal, self.padding = causal, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(6) if self.causal else None
        padding = x[:, :, 0] > 1.5 if self.padding else None
        if padding is not None:
            padding = padding.float().masked_fill(padding, float("-inf"))
        y = self.encoder(x, mask=mask, src_key_padding_mask=padding, is_causal=self.causal)
        return self.head(y.mean(1))


class Translator(nn.Module):
    """nn.Transformer with a causal target mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 8)
        self.body = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 60)

    def forward(self, source: torch.Tensor, target_words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target_words.shape[1] - 1)
        inputs = self.embedding(target_words[:, :-1])
        y = self.head(self.body(self.embedding(source), inputs, tgt_mask=mask))
        return functional.cross_entropy(y.flatten(0, 1), target_words[:, 1:].flatten())


class Siamese(nn.Module):
    """One net with batch norm, applied to both images of a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        a, b = self.net(one), self.net(other)
        return (1 - functional.cosine_similarity(a, b)).mean() + a.mean()


class SimClr(Siamese):
    """Contrastive loss: views of an image attract each other and repel those of other images."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        a, b = (functional.normalize(self.net(x)) for x in (one, other))
        return functional.cross_entropy(a @ b.T / 0.5, torch.arange(a.shape[0]))


class Triplet(nn.Module):
    """Three passes through one net."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return functional.triplet_margin_loss(self.net(a), self.net(p), self.net(n))


class Byol(nn.Module):
    """A student learns from a frozen teacher with the same architecture."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.predictor = nn.Linear(8, 8)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            expected = self.teacher(other)
        return functional.mse_loss(self.predictor(self.student(one)), expected)


class Vae(nn.Module):
    """A variational autoencoder; its noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.both = nn.Linear(8, 16), nn.Linear(16, 8)
        self.leave = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log = self.both(functional.relu(self.enter(x))).chunk(2, -1)
        y = self.leave(mean + noise * torch.exp(0.5 * log))
        return functional.mse_loss(y, x) - 0.5 * (1 + log - mean.square() - log.exp()).mean()


class DistributionVae(Vae):
    """The same, with terms from torch.distributions."""

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log = self.both(functional.relu(self.enter(x))).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, torch.exp(0.5 * log))
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        y = self.leave(mean + noise * posterior.stddev)
        divergence = torch.distributions.kl_divergence(posterior, prior).mean()
        return divergence - torch.distributions.Normal(y, 1.0).log_prob(x).mean()


class Policy(nn.Module):
    """A policy-gradient loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))

    def forward(self, x: torch.Tensor, action: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        chosen = torch.distributions.Categorical(logits=self.net(x))
        return -(chosen.log_prob(action) * gain).mean() - 0.01 * chosen.entropy().mean()


class UNet(nn.Module):
    """A U-Net of one level with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = self.pair(3, 8)
        self.deep = self.pair(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.leave = self.pair(16, 8)
        self.head = nn.Conv2d(8, CLASSES, 1)

    def pair(self, inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        fine = self.enter(x)
        up = self.up(self.deep(functional.max_pool2d(fine, 2)))
        return functional.cross_entropy(self.head(self.leave(torch.cat([fine, up], 1))), mask)


class Recurrent(nn.Module):
    """A recurrent classifier."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.body = kind(8, 6, batch_first=True, **settings)
        self.head = nn.Linear(12 if settings.get("bidirectional") else 6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[0][:, -1])


class Packed(nn.Module):
    """An LSTM over sequences of known lengths, packed."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, [6, 5, 3, 2], batch_first=True)
        _, (last, _) = self.body(packed)
        return self.head(last[-1])


class Unpacked(Packed):
    """The same, with the outputs unpacked and averaged."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([6, 3, 5, 2])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.body(packed)[0], batch_first=True)
        return self.head(outputs.sum(1))


class Unused(nn.Module):
    """A layer that does not affect the loss, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.other = nn.Linear(8, CLASSES), nn.Linear(8, 4)
        self.never = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), self.other(x)


class Attention(nn.Module):
    """Common uses of nn.MultiheadAttention."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.settings = settings
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(x, x, x, **self.settings)[0].mean(1))


class Autocast(nn.Module):
    """Disabled autocast, as in scripts for other machines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.net(x)


class Mapped(Autocast):
    """torch.func.vmap over the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(self.net)(x)


class WordMean(nn.Module):
    """Word vectors averaged by an embedding bag."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(60, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(text))


class Sound(nn.Module):
    """CTC over short sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, transcript: torch.Tensor) -> torch.Tensor:
        logs = self.body(x).log_softmax(-1).transpose(0, 1)
        sizes = torch.full((4,), 6), torch.full((4,), 2)
        return functional.ctc_loss(logs, transcript, *sizes)


class Scaled(nn.Module):
    """Weight normalization with the old hooks; a parameter and a buffer are outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.weight_norm(nn.Linear(8, 8))
        self.last = nn.utils.weight_norm(nn.Linear(8, CLASSES), dim=None)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("shift", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.last(self.first(x + self.shift).relu()) * self.scale
        return y, self.scale, self.shift


class Routed(nn.Module):
    """Route each row to its top two experts: all are computed, then weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            out = out + expert(x) * (weights * (chosen == e)).sum(-1, keepdim=True)
        return self.head(out)


def small(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Declare inputs that include their labels."""
    return inputs


def recurrent(kind: type[nn.RNNBase], **settings: Any) -> Builder:
    return lambda: classes(Recurrent(kind, **settings), x=sequence())


def own(module: type[nn.Module], *names: str) -> Builder:
    """Build a case of a module that returns its loss on random vectors."""
    return lambda: Case(module().train(), {name: torch.randn(4, 8) for name in names})


def pairs(module: type[nn.Module]) -> Builder:
    return lambda: Case(module().train(), {"one": pictures(4, 8), "other": pictures(4, 8)})


PLAIN: dict[str, Builder] = {
    "transformer-encoder": lambda: classes(Encoder(), x=sequence()),
    "transformer-encoder-norm-first": lambda: classes(Encoder(norm_first=True), x=sequence()),
    "transformer-encoder-causal": lambda: classes(Encoder(causal=True), x=sequence()),
    "transformer-encoder-padding": lambda: classes(Encoder(padding=True), x=sequence()),
    "transformer": lambda: Case(
        Translator().train(), {"source": words(), "target_words": words(length=7)}
    ),
    "attention": lambda: classes(Attention(), x=sequence()),
    "attention-no-weights": lambda: classes(Attention(need_weights=False), x=sequence()),
    "siamese": pairs(Siamese),
    "simclr": pairs(SimClr),
    "triplet": own(Triplet, "a", "p", "n"),
    "byol": own(Byol, "one", "other"),
    "vae": lambda: Case(Vae().train(), {"x": torch.randn(4, 8), "noise": torch.randn(4, 4)}),
    "vae-distributions": lambda: Case(
        DistributionVae().train(), {"x": torch.randn(4, 8), "noise": torch.randn(4, 4)}
    ),
    "policy": lambda: Case(
        Policy().train(),
        {"x": torch.randn(4, 8), "action": labels(4), "gain": torch.randn(4)},
    ),
    "u-net": lambda: Case(UNet().train(), {"x": pictures(2, 16), "mask": labels(2, 16, 16)}),
    "rnn": recurrent(nn.RNN),
    "lstm": recurrent(nn.LSTM),
    "lstm-bidirectional": recurrent(nn.LSTM, bidirectional=True, num_layers=2),
    "gru": recurrent(nn.GRU),
    "lstm-packed": lambda: classes(Packed(), x=sequence()),
    "lstm-unpacked": lambda: classes(Unpacked(), x=sequence()),
    "unused": lambda: classes(Unused(), x=torch.randn(4, 8)),
    "autocast-disabled": lambda: classes(Autocast(), x=torch.randn(4, 8)),
    "weight-norm-by-hooks": lambda: classes(Scaled(), x=torch.randn(4, 8)),
    "routed": lambda: classes(Routed(), x=torch.randn(4, 8)),
    "vmap": lambda: classes(Mapped(), x=torch.randn(4, 8)),
    "embedding-bag": lambda: classes(WordMean(), text=words(4)),
    "ctc": lambda: Case(
        Sound().train(), {"x": sequence(), "transcript": torch.randint(1, 5, (4, 2))}
    ),
}
