"""Modules with recurrent layers and cells, and their inputs."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

CELLS, RECURRENT = (nn.LSTMCell, nn.GRUCell, nn.RNNCell), (nn.LSTM, nn.GRU, nn.RNN)


class Cells(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(2, 4)

    def forward(self, x):
        state = None
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return torch.cat(state, 1) if isinstance(state, tuple) else state


class Recurrent(nn.Module):
    """All that a recurrent layer returns, in one row for each record."""

    def __init__(self, kind, *, start=False, batch_first=True, **settings):
        super().__init__()
        self.layer, self.start = kind(2, 4, batch_first=batch_first, **settings), start

    def forward(self, x):
        state = None
        if self.start:
            width = self.layer.proj_size or 4
            levels = self.layer.num_layers * (1 + self.layer.bidirectional)
            state = torch.full((levels, len(x), width), 0.3)
            state = (state, torch.full((levels, len(x), 4), 0.2)) if isinstance(self.layer, nn.LSTM) else state
        out, state = self.layer(x if self.layer.batch_first else x.transpose(0, 1), state)
        return torch.cat([out.mean(1 if self.layer.batch_first else 0), *rows_of_state(state)], 1)


def rows_of_state(state):
    return [part.transpose(0, 1).flatten(1) for part in (state if isinstance(state, tuple) else (state,))]


class OwnState(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, 4))
        self.layer = nn.GRU(2, 4, batch_first=True)

    def forward(self, x):
        return self.layer(x, self.first.expand(1, len(x), 4).contiguous())[0].mean(1)


class Packed(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.words, self.layer = nn.Embedding(5, 2), kind(2, 4, batch_first=True, **settings)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(x), lengths, batch_first=True, enforce_sorted=False)
        out, state = self.layer(packed)
        return torch.cat([nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0].sum(1), *rows_of_state(state)], 1)


def frozen_in_part(module):
    module.layer.weight_ih_l0.requires_grad_(False)
    return module


def numbers(count):
    return (torch.randn(count, 3, 2),)


def packed_words(count):
    return torch.randint(5, (count, 4)), torch.randint(1, 5, (count,))


RECURRENT_CASES = {
    "own parameters and a gru": (OwnState, numbers),
    **{f"{kind.__name__}": (lambda kind=kind: Cells(kind), numbers) for kind in CELLS},
    **{f"{kind.__name__}": (lambda kind=kind: Recurrent(kind), numbers) for kind in RECURRENT},
    **{
        f"{kind.__name__}, time first, as many steps as records": (
            lambda kind=kind: Recurrent(kind, batch_first=False),
            lambda count: (torch.randn(count, count, 2),),
        )
        for kind in RECURRENT
    },
    **{f"{kind.__name__} on packed words": (lambda kind=kind: Packed(kind), packed_words) for kind in RECURRENT},
    "lstm with all settings": (
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=2, batch_first=False, start=True),
        numbers,
    ),
    "gru without bias, backwards too, frozen in part": (
        lambda: frozen_in_part(Recurrent(nn.GRU, bias=False, bidirectional=True)),
        numbers,
    ),
    "rnn with relu": (lambda: Recurrent(nn.RNN, nonlinearity="relu", start=True), numbers),
    "lstm on packed words, both ways": (lambda: Packed(nn.LSTM, num_layers=2, bidirectional=True), packed_words),
}
