"""What the workers share: trainings without and with Perseus, and what an observer saw in them.

A job is what a worker trains: a schedule, an engine, or a pipeline. `train` returns all that was
computed, and the order of the instructions of the last step.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist

import perseus
import tiny_gpt
from observed import OFF

OPTIMIZER_STEPS, ACCUMULATION = 3, 2


def run_worker(observe, init=lambda: dist.init_process_group("gloo")):
    """Writes RESULTS/RANK.json: what `observe` found on this rank."""
    results = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    init()
    (results / f"{dist.get_rank()}.json").write_text(json.dumps(observe(results)))
    dist.barrier()
    dist.destroy_process_group()


def observe(results, name, make, train, patched, claimed=None, target=None):
    """Trains without Perseus, attached, with a detach between steps, and with two plans.

    Args:
        make: Returns a new job.
        train: Gets a job and a handle, which it detaches between steps, or None.
        patched: Returns the names that an adapter has left on a job.
        claimed: Returns the order of a job by the framework. None: what the observer saw.
        target: What is attached. None: the job.
    """

    def attached(job, detaches=False, **options):
        handle = perseus.attach(target or job, **options, **OFF)
        return handle, *train(job, handle if detaches else None)

    job, found = make(), {}
    order = claimed(job) if claimed else None
    found["never"], found["seen"] = train(job, None)
    found["order"] = order = order or found["seen"]
    job = make()
    handle, found["attached"], again = attached(job, job_directory=results / name)
    if found["seen"] != again:
        raise AssertionError(f"{name}: the observer saw another order with Perseus")
    found["is_attached"] = handle.is_attached
    found["steps"] = handle.session.counters.steps if handle.session else 0
    handle.detach()
    found["patched"] = patched(job)
    _, found["detached"], _ = attached(make(), detaches=True)
    for swap in (False, True):
        handle, *_ = attached(make(), plan=make_plan(results, name, order, swap))
        found["off_swapped_plan" if swap else "off_plan"] = handle.session.counters.steps_off_plan
        handle.detach()
    return found


def observe_ramp(results, job, train, target=None):
    """The number of microbatches changes while the job trains."""
    handle = perseus.attach(target or job, job_directory=results / "ramp", **OFF)
    train(job, ramp=True)
    found = {"is_attached": handle.is_attached}
    handle.detach()
    return found


def cells(order):
    letters = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
    return ",".join(f"{stage}{letters[kind]}{microbatch}" for kind, microbatch, stage in order)


def make_plan(results, name, order, swap):
    """Rank 0 makes a plan of the order that all ranks observed. `swap`: two microbatches change."""
    if swap:
        last = max(microbatch for _, microbatch, _ in order)
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
        profile = [
            {"stage": rank, "chunk": chunk, "instruction": kind, "frequency": mhz,
             "time": time * 1410 / mhz, "energy": time * 300 * mhz / 1410}
            for rank in range(dist.get_world_size())
            for chunk in range(chunks)
            for kind, time in times.items()
            for mhz in (1410, 1200, 1005)
        ]  # fmt: skip
        perseus.plan(profile, schedule_file=file, blocking_power_w=80).save(plan)
    dist.barrier()
    return plan


# ---- Steps of an optimizer that have several steps of the schedule ----


def accumulate(schedule, call):
    """Trains with evaluations between. `call` gets schedule.step or schedule.eval, a batch and a step."""
    parameters = [p for s in tiny_gpt.stages_of(schedule) for p in s.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    found = []
    for step in range(OPTIMIZER_STEPS):
        optimizer.zero_grad()
        for accumulated in range(ACCUMULATION):
            tiny_gpt.ObservedStage.seen.clear()
            found += call(schedule.step, step * ACCUMULATION + accumulated, step)
        seen = list(tiny_gpt.ObservedStage.seen)
        optimizer.step()
        if "ZBV" not in type(schedule).__name__:  # torch 2.13 cannot.
            with torch.no_grad():
                found += call(schedule.eval, step, 0)
    return found + [p.to_local().tolist() for p in parameters], seen


def compare(make, job_directory):
    """Trains without and with Perseus. `make` returns the arguments of accumulate()."""
    expected, order = accumulate(*make())
    schedule, call = make()
    handle = perseus.attach(schedule, job_directory=job_directory, **OFF)
    found, again = accumulate(schedule, call)
    counters = handle.session.counters
    is_attached = handle.is_attached
    handle.detach()
    return {
        "is_same": found == expected and order == again,
        "is_attached": is_attached,
        "steps": counters.steps,
        "order": order,
        "stages": sorted(stage.stage_index for stage in tiny_gpt.stages_of(schedule)),
    }
