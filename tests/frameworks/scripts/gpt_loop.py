"""A loop as small GPT repositories have it: accumulation by hand, a scaler, evaluations, a schedule."""

import contextlib
import math
import os
import sys

import torch
import torch.distributed as dist
from tiny_data import LENGTH, Codes, TinyGPT
from torch.nn.parallel import DistributedDataParallel

ACCUMULATE, EVALUATE_EVERY = 2, 20


def rate(step, steps):
    return 1e-3 * (step + 1) / 5 if step < 5 else 1e-4 + 5e-4 * (1 + math.cos(math.pi * step / steps))


def main():
    steps = int(sys.argv[1])
    is_parallel = "RANK" in os.environ
    rank = 0
    if is_parallel:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    torch.manual_seed(1337 + rank)
    torch.set_num_threads(1)
    data = Codes(64).codes.flatten()

    def batch():
        begins = torch.randint(len(data) - LENGTH - 1, (4,)).tolist()
        codes = torch.stack([data[i : i + LENGTH] for i in begins])
        return codes, torch.stack([data[i + 1 : i + 1 + LENGTH] for i in begins])

    raw = model = TinyGPT()
    decayed = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3
    )
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    if is_parallel:
        model = DistributedDataParallel(model)

    @torch.no_grad()
    def evaluate():
        model.eval()
        losses = [model(*batch())[1].item() for _ in range(3)]
        model.train()
        return sum(losses) / len(losses)

    codes, targets = batch()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        if step % EVALUATE_EVERY == 0 and rank == 0:
            print("evaluation", evaluate().hex(), flush=True)
        for microbatch in range(ACCUMULATE):
            if is_parallel:
                model.require_backward_grad_sync = microbatch == ACCUMULATE - 1
            with contextlib.nullcontext():
                _, loss = model(codes, targets)
                loss = loss / ACCUMULATE
            codes, targets = batch()  # The next one, while the GPU computes.
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            print("loss", loss.item().hex(), flush=True)
    if is_parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
