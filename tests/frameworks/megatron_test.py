"""The adapter of Megatron-core, with real processes."""

import unittest

from observed import ObservedTest
from works import works


class SchedulesTest(ObservedTest):
    def check_schedules(self, ranks):
        for rank, found in self.observe(ranks, "megatron_worker.py"):
            for name, chunks in [("1F1B", 1), ("interleaved", 2)]:
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    # The table of Megatron-core claims the order that autograd ran.
                    self.assertEqual(found[name]["steps"], 4)
                    self.assertEqual(found[name]["seen"], found[name]["order"])
                    stages = [chunk * ranks + rank for chunk in range(chunks)]
                    self.check(found[name], name, rank, ranks, stages)
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                self.check_ramp(found["ramp"], rank, [16, 16, 32, 32])

    @works(
        "megatron-core",
        "1F1B, interleaved: order, plan, results, evaluation between steps, changing "
        "number of microbatches; 2 ranks",
    )
    def test_two_ranks(self):
        self.check_schedules(2)

    @works("megatron-core", "the same with 4 ranks")
    def test_four_ranks(self):
        self.check_schedules(4)


if __name__ == "__main__":
    unittest.main()
