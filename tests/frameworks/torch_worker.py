"""One rank of torch_test.py: runs every schedule class with and without Perseus.

Writes RESULTS/rank.json: for each schedule what an observer saw, what Perseus counted, and hashes of
the losses and gradients of each run.
"""

import hashlib
import json
import pathlib
import sys

import torch
import torch.distributed as dist

import perseus
import tiny_gpt
from observed import hooks_of

STEPS, MICROBATCHES = 3, 8
OFF = {"agent": "off", "devices": "off"}


def state_hash(schedule, losses):
    """Of all losses and gradients, bit for bit."""
    digest = hashlib.sha256(repr([loss.hex() for loss in losses]).encode())
    for stage in tiny_gpt.stages_of(schedule):
        for parameter in stage.submod.parameters():
            digest.update(parameter.grad.numpy().tobytes())
    return digest.hexdigest()


def train(schedule, steps=STEPS):
    """Returns a hash of all that was computed, and what the observer saw in the last step."""
    for stage in tiny_gpt.stages_of(schedule):
        stage.submod.zero_grad()
    losses = []
    for step in range(steps):
        tiny_gpt.ObservedStage.seen.clear()
        losses += tiny_gpt.run_step(schedule, step, MICROBATCHES)
    return state_hash(schedule, losses), list(tiny_gpt.ObservedStage.seen)


def patched(schedule):
    """The names that an adapter has set on the objects."""
    return [name for owner in [schedule, *tiny_gpt.stages_of(schedule)] for name in hooks_of(owner)]


def cells(order):
    letters = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
    return ",".join(f"{stage}{letters[kind]}{microbatch}" for kind, microbatch, stage in order)


def make_plan(results, name, order, swap):
    """Rank 0 makes a plan of the order that all ranks observed. `swap`: two microbatches change."""
    if swap:
        last = MICROBATCHES - 1
        other = {last: last - 1, last - 1: last}
        order = [(kind, other.get(i, i), stage) for kind, i, stage in order]
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, cells(order))
    plan = results / f"{name}{'-swapped' if swap else ''}.json"
    if dist.get_rank() == 0:
        file = plan.with_suffix(".csv")
        file.write_text("\n".join(rows) + "\n")
        times = {"forward": 0.01, "backward": 0.02, "backward_input": 0.01, "backward_weight": 0.01}
        chunks = len({stage for _, _, stage in order})
        rows = [
            (rank, chunk, kind, mhz, time * 1410 / mhz, time * 300 * mhz / 1410)
            for rank in range(dist.get_world_size())
            for chunk in range(chunks)
            for kind, time in times.items()
            for mhz in (1410, 1200, 1005)
        ]
        names = ("stage", "chunk", "instruction", "frequency", "time", "energy")
        profile = dict(zip(names, map(list, zip(*rows))))
        perseus.plan(profile, schedule_file=file, blocking_power_w=80).save(plan)
    dist.barrier()
    return plan


def observe(results, name, csv=None):
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def make():
        return tiny_gpt.make_schedule(name, rank, ranks, MICROBATCHES, csv=csv)

    found = {"rank": rank}
    found["never"], order = train(make())
    schedule = make()
    handle = perseus.attach(schedule, job_directory=results / name, **OFF)
    found["attached"], again = train(schedule)
    if order != again:
        raise AssertionError(f"{name}: the observer saw another order with Perseus")
    found["is_attached"] = handle.is_attached
    found["steps"] = handle.session.counters.steps
    found["stages"] = sorted(stage.stage_index for stage in tiny_gpt.stages_of(schedule))
    handle.detach()
    found["patched"] = patched(schedule)
    found["detached"], _ = train(schedule)
    found["order"] = order
    for swap in (False, True):
        plan = make_plan(results, name, order, swap)
        schedule = make()
        handle = perseus.attach(schedule, plan=plan, **OFF)
        train(schedule)
        found["off_swapped_plan" if swap else "off_plan"] = handle.session.counters.steps_off_plan
        handle.detach()
    return found


def main():
    results = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    found = {name: observe(results, name) for name in tiny_gpt.SCHEDULES}
    # The file that rank 0 wrote for the plan of Interleaved1F1B is a schedule of torch, too.
    found["csv"] = observe(results, "csv", csv=results / "Interleaved1F1B.csv")
    (results / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
