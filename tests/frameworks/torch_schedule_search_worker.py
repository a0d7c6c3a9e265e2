"""One rank of torch_schedule_search_test.py: trains with 1F1B, and with the schedules of CSV files.

Writes RESULTS/rank.json: a hash of all losses and gradients of each training, bit for bit.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist

import tiny_gpt
from torch_worker import state_hash

STEPS, MICROBATCHES = 3, 8


def train(name, csv=None):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    schedule = tiny_gpt.make_schedule(name, rank, ranks, MICROBATCHES, csv=csv, indices=[rank])
    for stage in tiny_gpt.stages_of(schedule):
        stage.submod.zero_grad()
    losses = []
    tiny_gpt.ObservedStage.seen.clear()
    for step in range(STEPS):
        losses += tiny_gpt.run_step(schedule, step, MICROBATCHES)
    kinds = [kind for kind, _, _ in tiny_gpt.ObservedStage.seen]
    return {"hash": state_hash(schedule, losses), "first_backward": kinds.index("backward")}


def main():
    results = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    found = {"1F1B": train("1F1B")}
    for csv in sorted(results.glob("schedules/*.csv")):
        found[csv.stem] = train("csv", csv)
    (results / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
