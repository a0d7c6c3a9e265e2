"""Trains a small GPT over pipeline stages with torch.distributed.pipelining. README.md explains it.

Nothing here depends on Perseus, except --gpu-profile. It adds layers that take the time of a GPU.
"""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
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


def make_stage(index, stages, extra):
    torch.manual_seed(index)  # The same weights in every run.
    first = [nn.Embedding(VOCABULARY, WIDTH)] if index == 0 else []
    last = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)] if index == stages - 1 else []
    return nn.Sequential(*first, Block(), *extra, *last)


def loss_of(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def clip_gradients(parameters):
    squared_norm = nn.utils.get_total_norm([p.grad for p in parameters]) ** 2
    dist.all_reduce(squared_norm)  # Sums over all stages.
    nn.utils.clip_grads_with_norm_(parameters, 1.0, squared_norm.sqrt())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedule", default="1F1B", help="a schedule class of PyTorch")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--gpu-profile", type=pathlib.Path, help="profile of the virtual GPUs")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    schedule_class = get_schedule_class(flags.schedule)
    chunks = 2 if issubclass(schedule_class, PipelineScheduleMulti) else 1
    indices = [rank, rank + ranks][:chunks]
    if flags.schedule in ("ZBVZeroBubble", "DualPipeV"):  # The last rank has two neighbors.
        indices = [rank, 2 * ranks - 1 - rank]
    if flags.gpu_profile:
        from perseus import virtual
    stages = []
    for chunk, index in enumerate(indices):
        extra = [virtual.layer(flags.gpu_profile, rank, chunk)] if flags.gpu_profile else []
        module = make_stage(index, chunks * ranks, extra)
        stages.append(PipelineStage(module, index, chunks * ranks, torch.device("cpu")))
    on_rank = stages if chunks > 1 else stages[0]
    schedule = schedule_class(on_rank, flags.microbatches, loss_fn=loss_of)
    parameters = [p for s in stages for p in s.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    codes = torch.tensor([code % VOCABULARY for code in pathlib.Path(__file__).read_bytes()])
    for step in range(flags.steps):
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(codes) - CONTEXT, (2 * flags.microbatches,), generator=generator)
        windows = torch.stack([codes[start : start + CONTEXT + 1] for start in starts])
        is_last, losses, began = chunks * ranks - 1 in indices, [], time.perf_counter()
        inputs = [windows[:, :-1]] if rank == 0 else []
        targets = {"target": windows[:, 1:], "losses": losses} if is_last else {}
        schedule.step(*inputs, **targets)
        clip_gradients(parameters)
        optimizer.step()
        optimizer.zero_grad()
        if is_last and step % 10 == 0:
            loss, seconds = torch.stack(losses).mean(), time.perf_counter() - began
            print(f"step {step}: loss {loss:.4f}, {seconds:.3f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
