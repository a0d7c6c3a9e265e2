"""The adapter of torch.distributed.pipelining, with real processes and every schedule class."""

import unittest

import tiny_gpt
from observed import ObservedTest
from works import works


class SchedulesTest(ObservedTest):
    """On 2 and 4 ranks, each schedule class is run once with an observer."""

    def check_schedules(self, ranks):
        for rank, found in self.observe(ranks, "torch_worker.py"):
            for name in [*tiny_gpt.SCHEDULES, "csv"]:
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    self.check(found[name], name, rank, ranks, found[name]["stages"])

    @works(
        "torch",
        "GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, "
        "DualPipeV, and a schedule from a CSV: order, plan, results; 2 ranks",
    )
    def test_two_ranks(self):
        self.check_schedules(2)

    @works("torch", "the same with 4 ranks")
    def test_four_ranks(self):
        self.check_schedules(4)


if __name__ == "__main__":
    unittest.main()
