"""The examples of DeepSpeed and Megatron-core, from nothing to a verified saving."""

import os
import pathlib
import unittest

from closed_loop import MANY_STEPS, ClosedLoopTest
from works import works

HERE = pathlib.Path(__file__).parent
EXAMPLES = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "examples"


class FrameworksClosedLoopTest(ClosedLoopTest):
    def run_example(self, name):
        self.synthesize("--work-scale=0.5", "--imbalance=0.1")
        self.start_agent()
        example = EXAMPLES / name / "train.py"
        self.tune_and_check(
            HERE / "virtual_training.py", example, "truth.csv", f"--steps={MANY_STEPS}",
            "--microbatches=4", "--batch=1",
        )  # fmt: skip

    @works("deepspeed", "tune and verify, 4 ranks, 1F1B")
    def test_deepspeed(self):
        self.run_example("deepspeed")

    @works("megatron-core", "tune and verify, 4 ranks, 1F1B")
    def test_megatron(self):
        self.run_example("megatron")


if __name__ == "__main__":
    unittest.main()
