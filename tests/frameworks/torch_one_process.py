"""Tests of the adapter of torch.distributed.pipelining in one process, which is the whole pipeline."""

import json
import pathlib
import tempfile
import unittest

import torch
import torch.distributed as dist

import perseus
import tiny_gpt

MICROBATCHES = 4


def parameters_of(schedule):
    return [p for stage in tiny_gpt.stages_of(schedule) for p in stage.submod.parameters()]


class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.job = pathlib.Path(directory.name)
        self.handles = []
        self.addCleanup(lambda: [handle.detach() for handle in self.handles])

    def attach(self, schedule, **options):
        handle = perseus.attach(
            schedule, job_directory=self.job, agent="off", devices="off", **options
        )
        self.handles.append(handle)
        return handle

    def make(self, name="1F1B", **named):
        return tiny_gpt.make_schedule(name, 0, 1, MICROBATCHES, **named)

    def step(self, schedule, microbatches=MICROBATCHES):
        return tiny_gpt.run_step(schedule, 0, microbatches)

    def recorded(self):
        """The instructions of each step in the rank log, after the session was closed."""
        lines = (self.job / "ranks" / "dp0-pp0-tp0.jsonl").read_text().splitlines()[1:]
        return [json.loads(line)["instructions"] for line in lines]

    def warnings_of(self, action):
        with self.assertLogs("perseus", "WARNING") as logs:
            action()
        return logs.output
