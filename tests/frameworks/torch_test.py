"""The adapter of torch.distributed.pipelining, with real processes and every schedule class."""

import unittest

import tiny_gpt
from observed import ObservedTest


class SchedulesTest(ObservedTest):
    """On 2 and 4 ranks, each schedule class is run once with an observer."""

    WORKER = "torch_worker.py"

    def check_schedules(self, ranks):
        for rank, found, log in self.observe(ranks):
            for name in [*tiny_gpt.SCHEDULES, "csv"]:
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    self.check(found[name], ranks, found[name]["stages"], *log(name))

    def test_two_ranks(self):
        self.check_schedules(2)

    def test_four_ranks(self):
        self.check_schedules(4)


if __name__ == "__main__":
    unittest.main()
