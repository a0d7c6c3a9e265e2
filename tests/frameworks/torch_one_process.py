"""Tests of the adapter of torch.distributed.pipelining in one process, which is the whole pipeline."""

import torch
import torch.distributed as dist

import perseus
import tiny_gpt
from observed import OFF, ScratchTest

MICROBATCHES = 4


def parameters_of(schedule):
    return [p for stage in tiny_gpt.stages_of(schedule) for p in stage.submod.parameters()]


class TorchTest(ScratchTest):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self):
        super().setUp()
        self.handles = []
        self.addCleanup(lambda: [handle.detach() for handle in self.handles])

    def attach(self, schedule, **options):
        handle = perseus.attach(schedule, job_directory=self.scratch, **OFF, **options)
        self.handles.append(handle)
        return handle

    def make(self, name="1F1B", **named):
        return tiny_gpt.make_schedule(name, 0, 1, MICROBATCHES, **named)

    def step(self, schedule, microbatches=MICROBATCHES):
        return tiny_gpt.run_step(schedule, 0, microbatches)

    def warnings_of(self, action):
        with self.assertLogs("perseus", "WARNING") as logs:
            action()
        return logs.output
