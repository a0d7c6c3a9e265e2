"""One rank of torch_schedule_search_test.py: trains with 1F1B, and with the schedules of CSV files.

Writes RESULTS/rank.json: a hash of all losses and gradients of each training, bit for bit.
"""

import torch
import torch.distributed as dist

from comparison import run_worker
from torch_worker import make, train


def observe(name, csv=None):
    found, seen = train(make(name, csv, indices=[dist.get_rank()]))
    return {"hash": found, "first_backward": [kind for kind, _, _ in seen].index("backward")}


def observe_all(results):
    torch.use_deterministic_algorithms(True)
    found = {csv.stem: observe("csv", csv) for csv in sorted(results.glob("schedules/*.csv"))}
    return {"1F1B": observe("1F1B"), **found}


if __name__ == "__main__":
    run_worker(observe_all)
