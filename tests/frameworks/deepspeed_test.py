"""The adapter of DeepSpeed, with real processes."""

import unittest

from observed import ObservedTest
from works import works


class EngineTest(ObservedTest):
    def check_engine(self, ranks):
        for rank, found in self.observe(ranks, "deepspeed_worker.py"):
            for name in sorted({"1F1B", "DualPipeV"} & set(found)):
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    self.check_order(found[name])
                    stages = sorted({stage for _, _, stage in found[name]["order"]})
                    self.check(found[name], name, rank, ranks, stages)
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                self.check_ramp(found["ramp"], rank, [8, 8, 16, 16])

    def check_order(self, found):
        """DeepSpeed's schedule claims the order that autograd ran."""
        self.assertEqual(found["steps"], 4)
        blocks = len(found["seen"]) // len(found["order"])
        self.assertEqual(found["seen"][::blocks], [kind for kind, _, _ in found["order"]])

    @works(
        "deepspeed",
        "1F1B, DualPipeV: order, plan, results, evaluation between steps, changing number "
        "of microbatches; 2 ranks",
    )
    def test_two_ranks(self):
        self.check_engine(2)

    @works("deepspeed", "the same with 4 ranks")
    def test_four_ranks(self):
        self.check_engine(4)


if __name__ == "__main__":
    unittest.main()
