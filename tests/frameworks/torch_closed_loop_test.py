"""The example of torch.distributed.pipelining, unchanged, from nothing to a verified saving."""

import os
import pathlib
import unittest

from closed_loop import MANY_STEPS, ClosedLoopTest
from works import works

TRAIN = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "examples" / "torch_pipelining" / "train.py"


class TorchClosedLoopTest(ClosedLoopTest):
    @works("torch", "tune and verify, 4 ranks, 1F1B")
    def test_1f1b(self):
        self.synthesize("--work-scale=0.5", "--imbalance=0.1")
        self.start_agent()
        arguments = ["--gpu-profile=truth.csv", f"--steps={MANY_STEPS}", "--microbatches=4"]
        self.tune_and_check(TRAIN, *arguments)


if __name__ == "__main__":
    unittest.main()
