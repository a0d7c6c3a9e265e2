#!/usr/bin/env python3
"""Measures what a hook around an instruction costs in Python.

    PYTHONPATH=build/release/python build/venv/bin/python bench/python_hooks.py [--json]

Each way runs steps of 192 instructions that compute nothing, without an agent. In each round, the
ways run one after the other. The result of a way is the time of its median round, minus the time of
the same loop without hooks.

In a training process, the caches contain the data of the computation and not the hook. So `cold`
measures one instruction after a copy of 32 MB. Most of this time is for cache misses, which do not
depend on the hook.

    empty       a `with` of a Python context manager that does nothing: the least cost of a hook
    with        with session.instruction(...): nothing is recorded
    recorded    the same, but the instructions are recorded in a job directory
    begin/end   session.instruction_begin(), session.instruction_end()
    attached    perseus.attach(schedule), with a stage of torch.distributed.pipelining whose methods
                do nothing. Omitted if torch is not installed.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time

import perseus

INSTRUCTIONS = 192  # The number of instructions in a step.
ROUNDS = 41
CACHES = bytes(32 << 20)
OFF = {"agent": "off", "devices": "off"}


class Empty:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


def loop(step, hook):
    """Returns a loop. `step` and `hook` return the context managers of a step and instruction."""

    def run():
        with step():
            for microbatch in range(INSTRUCTIONS):
                with hook("forward", microbatch):
                    pass

    return run


def nothing():
    for _ in range(INSTRUCTIONS):
        pass


def begin_end(session):
    def run():
        session.step_begin()
        for microbatch in range(INSTRUCTIONS):
            session.instruction_begin("forward", microbatch)
            session.instruction_end()
        session.step_end()

    return run


def schedules():
    """Returns a function that makes a schedule. A step calls the stage's methods, as GPipe does."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    class EmptyStage(PipelineStage):
        def forward_one_chunk(self, fwd_chunk_id, args=(), kwargs=None, save_forward_output=True):
            return None

        def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
            return None

    class EmptySchedule(ScheduleGPipe):
        def step(self):
            stage, count = self._stage, self._n_microbatches
            for i in range(count):
                stage.forward_one_chunk(i, (), {}, save_forward_output=True)
                self._maybe_compute_loss(stage, None, None, i)
            for i in range(count):
                stage.backward_one_chunk(i, loss=None, last_backward=False)

        def _maybe_compute_loss(self, stage, output, target_mbs, mb_index, loss_kwargs=None):
            pass

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def make():
        stage = EmptyStage(torch.nn.Linear(1, 1), 0, 1, torch.device("cpu"))
        return EmptySchedule(stage, INSTRUCTIONS // 2, loss_fn=lambda output, target: output)

    return make


def cold(step, hook):
    times = []
    with step():
        for _ in range(101):
            bytearray(CACHES)  # Makes a copy of CACHES and frees it.
            began = time.perf_counter()
            with hook("forward", 0):
                pass
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "assignment.json"), "w") as file:
            file.write('{"perseus_assignment": 1, "version": 1, "from_step": 0, "record": true}')
        plain, recorded = perseus.open(**OFF), perseus.open(**OFF, job_directory=directory)
        # Each way of hooking, and its loop without hooks.
        empty, hooked = (Empty, lambda *_: Empty()), (plain.step, plain.instruction)
        ways = {
            "empty": (loop(*empty), nothing),
            "with": (loop(*hooked), nothing),
            "recorded": (loop(recorded.step, recorded.instruction), nothing),
            "begin/end": (begin_end(plain), nothing),
        }
        with contextlib.suppress(ImportError):
            make = schedules()
            attached = make()
            perseus.attach(attached, **OFF)
            ways["attached"] = (attached.step, make().step)
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (run, bare) in ways.items():
                began = time.perf_counter()
                run()
                between = time.perf_counter()
                bare()
                times[name].append(2 * between - began - time.perf_counter())
        found = {name: statistics.median(each) / INSTRUCTIONS * 1e6 for name, each in times.items()}
        cold_us = {"empty": cold(*empty), "with": cold(*hooked)}
        plain.close()
        recorded.close()
    if flags.json:
        print(json.dumps({"us_per_instruction": found, "cold_us": cold_us, "load": os.getloadavg()[0]}))
        return
    print(f"{'':12}us per instruction   relative    cold   (load: {os.getloadavg()[0]:.1f})")
    for name, value in found.items():
        print(f"{name:12}{value:18.3f}{value / found['with']:11.2f}"
              + (f"{cold_us[name]:8.1f}" if name in cold_us else ""))


if __name__ == "__main__":
    main()
