"""Trains a small GPT with DeepSpeed's PipelineEngine, one process for each stage.

Nothing in this file depends on Perseus. README.md shows how to run it with and without Perseus.
"""

import argparse
import os
import pathlib

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn
from torch.nn import functional

CONTEXT = 32  # Characters that the model sees.
VOCABULARY = 128  # ASCII.
WIDTH = 32


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, x):
        return self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))


class Head(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))


class Block(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def forward(self, x):
        return super().forward(x, src_mask=self.future)


def loss(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def text(batch):
    """Yields batches of consecutive characters of this file, and the same shifted by one."""
    codes = torch.tensor([code % VOCABULARY for code in pathlib.Path(__file__).read_bytes()])
    generator = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(len(codes) - CONTEXT - 1, (batch,), generator=generator)
        windows = torch.stack([codes[start : start + CONTEXT + 1] for start in starts])
        yield windows[:, :-1], windows[:, 1:]


def engine(stages, microbatches, batch):
    torch.manual_seed(0)
    layers = [LayerSpec(Embedding), *[LayerSpec(Block) for _ in range(6)], LayerSpec(Head)]
    model = PipelineModule(layers, num_stages=stages, loss_fn=loss, partition_method="uniform")
    config = {
        "train_micro_batch_size_per_gpu": batch,
        "gradient_accumulation_steps": microbatches,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": None,
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--stages", type=int, help="default: one for each process")
    arguments = parser.parse_args()

    deepspeed.init_distributed(dist_backend=None if torch.cuda.is_available() else "gloo")
    stages = arguments.stages or torch.distributed.get_world_size()
    training = engine(stages, arguments.microbatches, arguments.batch)
    batches = text(arguments.batch)
    for step in range(arguments.steps):
        value = training.train_batch(batches)
        if int(os.environ["RANK"]) == 0:
            print(f"step {step}: loss {value.item():.17g}", flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
