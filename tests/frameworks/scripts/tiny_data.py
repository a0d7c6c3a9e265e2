"""What the scripts share: a model without a pipeline and its data. Nothing here knows Perseus."""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, LENGTH, WIDTH = 64, 16, 32


class TinyGPT(nn.Module):
    """Returns the logits, and the loss if there are targets."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, codes, targets=None):
        x = self.tokens(codes) + self.positions(torch.arange(codes.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(codes.shape[1])
        logits = self.head(self.blocks(x, mask=mask, is_causal=True))
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Codes(torch.utils.data.Dataset):
    """(input, target): a sequence, and the same one position later."""

    def __init__(self, samples):
        generator = torch.Generator().manual_seed(0)
        self.codes = torch.randint(VOCABULARY, (samples, LENGTH + 1), generator=generator)

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, index):
        return self.codes[index, :-1], self.codes[index, 1:]
