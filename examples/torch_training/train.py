"""Trains a small GPT on one GPU, or on several with DDP or FSDP2. docs/any-training.md explains it.

Nothing here depends on Perseus, except --gpu-profile. It adds a layer that takes the time of a GPU.
"""

import argparse
import contextlib
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

VOCABULARY, CONTEXT, WIDTH, HEADS = 128, 32, 32, 4


class Block(nn.Module):
    """Causal attention, then a feed-forward network at each position."""
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(self.first_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        heads = heads.permute(2, 0, 3, 1, 4)  # Query, key and value.
        x_heads = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(x_heads.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.second_norm(x))


def wrap(model, how):
    """Returns the model that all ranks train together, and what accumulates without communication."""
    if how == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
        return model, model.no_sync
    if how == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            if isinstance(block, Block):
                fully_shard(block)
        return fully_shard(model), contextlib.nullcontext
    return model, contextlib.nullcontext


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrap", choices=["none", "ddp", "fsdp2"], default="none")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches of a step")
    parser.add_argument("--gpu-profile", type=pathlib.Path, help="profile of the virtual GPUs")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    rank = 0
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [nn.Embedding(VOCABULARY, WIDTH), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)]
    if flags.gpu_profile:
        from perseus import virtual

        layers.insert(2, virtual.layer(flags.gpu_profile, rank))
    model, without_communication = wrap(nn.Sequential(*layers), flags.wrap)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if flags.gpu_profile:
        virtual.optimizer_step(optimizer, flags.gpu_profile, rank)
    codes = torch.tensor([code % VOCABULARY for code in pathlib.Path(__file__).read_bytes()])
    torch.manual_seed(rank)
    for step in range(flags.steps):
        for microbatch in range(flags.accumulate):
            is_last = microbatch + 1 == flags.accumulate
            begins = torch.randint(len(codes) - CONTEXT - 1, (4,))
            batch = torch.stack([codes[begin : begin + CONTEXT + 1] for begin in begins])
            with contextlib.nullcontext() if is_last else without_communication():
                output = model(batch[:, :-1])
                loss = functional.cross_entropy(output.flatten(0, 1), batch[:, 1:].flatten())
                (loss / flags.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
