"""The adapter of Megatron-core, with real processes."""

import unittest

from observed import ObservedTest
from works import works


class SchedulesTest(ObservedTest):
    WORKER = "megatron_worker.py"

    def check_schedules(self, ranks):
        for rank, found, log in self.observe(ranks):
            for name, chunks in [("1F1B", 1), ("interleaved", 2)]:
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    # The table of Megatron-core claims the order that autograd ran.
                    self.assertEqual(found[name]["steps"], 4)
                    self.assertEqual(found[name]["order"], found[name]["claimed"])
                    stages = [chunk * ranks + rank for chunk in range(chunks)]
                    self.check(found[name], ranks, stages, *log(name))
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                _, steps = log("ramp")
                self.check_ramp(found["ramp"], [16, 16, 32, 32], steps)

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
