#!/usr/bin/env python3
"""Measures what the adapter of torch.distributed.pipelining costs for each instruction.

    PYTHONPATH=build/release/python build/venv/bin/python bench/python_adapter.py [--json]

A stage of PyTorch runs forwards and backwards of an empty computation: its methods are replaced by a
function that does nothing, so the times are those of the hooks alone. The ways take turns in each
round. The result of a way is its median round, less that of the loop without hooks. Nothing is
recorded, and there is no agent.

    with            with session.instruction(...) around the call: the least that a hook by hand costs
    attached        perseus.attach(schedule)
    zeus            on_instruction_begin and on_instruction_end of Zeus' own PipelineFrequencyOptimizer,
                    with the queue of its frequency controller. It waits for the device at each
                    begin. Here is no device: that call returns at once, and the process at the other
                    end of the queue sets no clock. So this is its cost without the waiting. Left out
                    if Zeus is not installed.
    synchronizing   a callback that waits for the device at the begin and at the end, as a profiler
                    does that measures with the clock of the host. On a CPU there is no device, so
                    only its calls count.
"""

import argparse
import functools
import json
import multiprocessing
import statistics
import sys
import time
import types

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import perseus

INSTRUCTIONS = 192  # Of a step: 96 forwards and 96 backwards.
ROUNDS = 41
OFF = {"agent": "off", "devices": "off"}


class EmptyStage(PipelineStage):
    def forward_one_chunk(self, fwd_chunk_id, args=(), kwargs=None, save_forward_output=True):
        return None

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        return None


class EmptySchedule(ScheduleGPipe):
    """Calls the methods of the stage as GPipe does, and nothing else."""

    def step(self):
        stage, count = self._stage, self._n_microbatches
        for i in range(count):
            stage.forward_one_chunk(i, (), {}, save_forward_output=True)
            self._maybe_compute_loss(stage, None, None, i)
        for i in range(count):
            stage.backward_one_chunk(i, loss=None, last_backward=False)

    def _maybe_compute_loss(self, stage, output, target_mbs, mb_index, loss_kwargs=None):
        pass


def make_schedule():
    stage = EmptyStage(torch.nn.Linear(1, 1), 0, 1, torch.device("cpu"))
    return EmptySchedule(stage, INSTRUCTIONS // 2, loss_fn=lambda output, target: output)


def by_hand(schedule, session):
    stage = schedule._stage

    def run():
        with session.step():
            for i in range(INSTRUCTIONS // 2):
                with session.instruction("forward", microbatch=i):
                    stage.forward_one_chunk(i, (), {}, save_forward_output=True)
                    schedule._maybe_compute_loss(stage, None, None, i)
            for i in range(INSTRUCTIONS // 2):
                with session.instruction("backward", microbatch=i):
                    stage.backward_one_chunk(i, loss=None, last_backward=False)

    return run


class Synchronizing:
    """Measures with the clock of the host, after waiting for the device."""

    def __init__(self):
        self.times = []

    def mark(self):
        torch.cpu.synchronize()
        self.times.append(time.perf_counter())


def synchronizing(schedule):
    stage, callback = schedule._stage, Synchronizing()

    def run():
        callback.times.clear()
        for i in range(INSTRUCTIONS // 2):
            callback.mark()
            stage.forward_one_chunk(i, (), {}, save_forward_output=True)
            schedule._maybe_compute_loss(stage, None, None, i)
            callback.mark()
        for i in range(INSTRUCTIONS // 2):
            callback.mark()
            stage.backward_one_chunk(i, loss=None, last_backward=False)
            callback.mark()

    return run


def discard(queue):
    while queue.get() is not None:
        pass


def zeus_optimizer():
    """Zeus' object without its constructor, which needs a GPU and a server. None: no Zeus."""
    sys.modules.setdefault("aiofiles", types.ModuleType("aiofiles"))  # Only its server uses it.
    try:
        from zeus.optimizer.pipeline_frequency.frequency_controller import FrequencyController
        from zeus.optimizer.pipeline_frequency.optimizer import PipelineFrequencyOptimizer
        from zeus.utils import framework
    except ImportError:
        return None
    framework.MODULE_CACHE["torch"] = torch  # Zeus refuses a torch without CUDA.
    framework.torch_is_available = functools.lru_cache(lambda ensure_available: True)
    torch.cuda.synchronize = lambda device=None: None
    controller = FrequencyController.__new__(FrequencyController)
    controller._q = multiprocessing.Queue()
    controller._proc = multiprocessing.Process(target=discard, args=(controller._q,))
    controller._proc.start()
    optimizer = PipelineFrequencyOptimizer.__new__(PipelineFrequencyOptimizer)
    half = INSTRUCTIONS // 2
    optimizer.device_id, optimizer.frequency_controller = 0, controller
    optimizer.freq_schedule = [("forward", 1410)] * half + [("backward", 1200)] * half
    optimizer.freq_schedule_iter = iter(optimizer.freq_schedule)
    return optimizer


def zeus(schedule, optimizer):
    stage = schedule._stage

    def run():
        optimizer.on_step_begin()
        for i in range(INSTRUCTIONS // 2):
            optimizer.on_instruction_begin("forward")
            stage.forward_one_chunk(i, (), {}, save_forward_output=True)
            schedule._maybe_compute_loss(stage, None, None, i)
            optimizer.on_instruction_end("forward")
        for i in range(INSTRUCTIONS // 2):
            optimizer.on_instruction_begin("backward")
            stage.backward_one_chunk(i, loss=None, last_backward=False)
            optimizer.on_instruction_end("backward")
        optimizer.on_step_end()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    attached = make_schedule()
    handle = perseus.attach(attached, **OFF)
    session = perseus.open(pp_rank=1, **OFF)
    ways = {
        "none": make_schedule().step,
        "with": by_hand(make_schedule(), session),
        "attached": attached.step,
        "synchronizing": synchronizing(make_schedule()),
    }
    optimizer = zeus_optimizer()
    if optimizer is not None:
        ways["zeus"] = zeus(make_schedule(), optimizer)
    times = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) / INSTRUCTIONS * 1e6)
    assert handle.is_attached and handle.session.counters.steps == ROUNDS
    medians = {name: statistics.median(values) for name, values in times.items()}
    found = {name: median - medians["none"] for name, median in medians.items() if name != "none"}
    if flags.json:
        print(json.dumps({"us_per_instruction": found, "loop_us": medians["none"]}))
    else:
        for name, value in found.items():
            print(f"{name:15} {value:7.3f} us per instruction {value / found['with']:6.1f}")
    if optimizer is not None:
        optimizer.frequency_controller.end()
        optimizer.frequency_controller._proc.join()  # It reads the queue to its end.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
