"""A small GPT, cut into pipeline stages. Nothing in this file depends on Perseus."""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 128  # ASCII.
CONTEXT = 64  # Characters that the model sees.
WIDTH = 128
HEADS = 4
BLOCKS = 8


class Block(nn.Module):
    """Causal attention, then a feed-forward network at each position."""

    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(self.first_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        weights = scores.masked_fill(self.future[:length, :length], float("-inf")).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.second_norm(x))


class Stage(nn.Module):
    """The layers of one rank. The first rank has the embedding, the last one computes the loss."""

    def __init__(self, rank, stages):
        super().__init__()
        torch.manual_seed(rank)  # The same weights in every run.
        self.is_first, self.is_last = rank == 0, rank == stages - 1
        if self.is_first:
            self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS // stages)])
        if self.is_last:
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x, targets=None):
        if self.is_first:
            x = self.token(x) + self.place(torch.arange(x.shape[1]))
        x = self.blocks(x)
        if not self.is_last:
            return x
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Text:
    """Batches of consecutive characters of a file. The targets are the inputs shifted by one character."""

    def __init__(self, path, batch):
        text = path.read_bytes()
        self.codes = torch.tensor([code % VOCABULARY for code in text])
        self.batch = batch

    def microbatch(self, step, index, microbatches):
        generator = torch.Generator().manual_seed(step * microbatches + index)
        starts = torch.randint(len(self.codes) - CONTEXT - 1, (self.batch,), generator=generator)
        windows = torch.stack([self.codes[start : start + CONTEXT + 1] for start in starts])
        return windows[:, :-1], windows[:, 1:]
