"""One rank of torch_test.py: runs every schedule class with and without Perseus.

Writes RESULTS/rank.json: for each schedule what an observer saw, what Perseus counted, and hashes of
the losses and gradients of each run.
"""

import functools
import hashlib

import torch
import torch.distributed as dist

import tiny_gpt
from comparison import observe, run_worker
from observed import hooks_of

STEPS, MICROBATCHES = 3, 8


def state_hash(schedule, losses):
    """Returns a hash of all losses and gradients, bit for bit."""
    digest = hashlib.sha256(repr([loss.hex() for loss in losses]).encode())
    for stage in tiny_gpt.stages_of(schedule):
        for parameter in stage.submod.parameters():
            digest.update(parameter.grad.numpy().tobytes())
    return digest.hexdigest()


def train(schedule, handle=None):
    """Returns a hash of all that was computed, and what the observer saw in the last step."""
    for stage in tiny_gpt.stages_of(schedule):
        stage.submod.zero_grad()
    losses = []
    for step in range(STEPS):
        if handle is not None and step == 1:
            handle.detach()
        tiny_gpt.ObservedStage.seen.clear()
        losses += tiny_gpt.run_step(schedule, step, MICROBATCHES)
    return state_hash(schedule, losses), list(tiny_gpt.ObservedStage.seen)


def patched(schedule):
    """The names that an adapter has set on the objects."""
    return [name for owner in [schedule, *tiny_gpt.stages_of(schedule)] for name in hooks_of(owner)]


def make(name, csv=None, indices=None):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return tiny_gpt.make_schedule(name, rank, ranks, MICROBATCHES, csv=csv, indices=indices)


def observe_all(results):
    torch.use_deterministic_algorithms(True)
    found = {}
    # Rank 0 wrote this file for the plan of Interleaved1F1B. It is a schedule of torch, too.
    for name in [*tiny_gpt.SCHEDULES, "csv"]:
        made = functools.partial(make, name, results / "Interleaved1F1B.csv" if name == "csv" else None)
        found[name] = observe(results, name, made, train, patched)
        found[name]["stages"] = sorted({stage for _, _, stage in found[name]["order"]})
    return found


if __name__ == "__main__":
    run_worker(observe_all)
