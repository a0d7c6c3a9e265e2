"""Pipeline and FSDP on four ranks, built and called as torchtitan does. torchtitan needs GPUs."""

import unittest

from observed import TwoPipelinesTest
from works import works


class TorchtitanTest(TwoPipelinesTest):
    @works(
        "torch",
        "the calls of torchtitan: its meshes, FSDP, 1F1B, Interleaved1F1B, ZBVZeroBubble, CSV, "
        "accumulation, evaluation; 4 ranks",
    )
    def test_two_pipelines_of_two_ranks(self):
        schedules = ("1F1B", "Interleaved1F1B", "ZBVZeroBubble", "csv")
        self.check_two_pipelines("torchtitan_worker.py", schedules, steps=6)


if __name__ == "__main__":
    unittest.main()
