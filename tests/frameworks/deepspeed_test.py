"""The adapter of DeepSpeed, with real processes."""

import unittest

from observed import ObservedTest
from works import works


class EngineTest(ObservedTest):
    WORKER = "deepspeed_worker.py"

    def check_engine(self, ranks):
        for rank, found, log in self.observe(ranks):
            for name in sorted({"1F1B", "DualPipeV"} & set(found)):
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    self.check_order(found[name])
                    stages = sorted({stage for _, _, stage in found[name]["order"]})
                    self.check(found[name], ranks, stages, *log(name))
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                _, steps = log("ramp")
                self.check_ramp(found["ramp"], [8, 8, 16, 16], steps)

    def check_order(self, found):
        """DeepSpeed's schedule claims the order that autograd ran."""
        self.assertEqual(found["steps"], 4)
        blocks = len(found["kinds"]) // len(found["order"])
        self.assertEqual(found["kinds"][::blocks], [kind for kind, _, _ in found["order"]])

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
