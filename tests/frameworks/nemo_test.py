"""NeMo AutoModel's pipeline of a model of transformers, on four ranks."""

import unittest

from observed import TwoPipelinesTest
from works import works


class NemoTest(TwoPipelinesTest):
    @works(
        "nemo_automodel",
        "AutoPipeline with FSDP: 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, "
        "accumulation, evaluation, changing sequence length; 4 ranks",
    )
    def test_auto_pipeline(self):
        schedules = ("1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")
        self.check_two_pipelines("nemo_worker.py", schedules, steps=6)


if __name__ == "__main__":
    unittest.main()
