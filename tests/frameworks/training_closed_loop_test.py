"""Training without a pipeline, unchanged, from nothing to a verified saving: 8 ranks with DDP.

The GPUs differ in speed by 5 %, and all wait for the slowest one in each step. An oracle knows the
times of all of them.
"""

import csv
import os
import pathlib
import unittest

import perseus
from closed_loop import ClosedLoopTest
from works import works

TRAIN = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "examples" / "torch_training" / "train.py"
MICROBATCHES = 4
BLOCKING_POWER_W = 84.0


class TrainingClosedLoopTest(ClosedLoopTest):
    RANKS = 8
    BUDGET_STEPS = 30
    VERIFY_STEPS = 84

    def saving_of_an_oracle(self):
        """The saving if each GPU has the best plan that ends with the slowest one."""
        with open(self.scratch / "truth.csv") as file:
            rows = list(csv.DictReader(file))
        profiles = [
            [{**row, "stage": 0} for row in rows if row["stage"] == str(rank)]
            for rank in range(self.RANKS)
        ]
        job = {"schedule": "1f1b", "microbatches": MICROBATCHES, "blocking_power_w": BLOCKING_POWER_W}
        slowest_s = max(perseus.plan(one, **job).baseline.time_s for one in profiles)
        needed_j = baseline_j = 0
        for one in profiles:
            planned = perseus.plan(one, deadline_s=slowest_s, per_instruction=True, **job)
            plan, base = planned.plan, planned.baseline
            needed_j += plan.energy_j + (slowest_s - plan.time_s) * BLOCKING_POWER_W
            baseline_j += base.energy_j + (slowest_s - base.time_s) * BLOCKING_POWER_W
        return 1 - needed_j / baseline_j

    @works("torch", "tune and verify, DistributedDataParallel, 8 ranks of different speed")
    def test_ddp(self):
        self.synthesize("--work-scale=0.5", "--imbalance=0.05")
        self.start_agent()
        arguments = ["--wrap=ddp", "--gpu-profile=truth.csv", "--steps=600", f"--accumulate={MICROBATCHES}"]
        verified = self.tune_and_check(TRAIN, *arguments)
        self.assertGreater(verified["saving"]["estimate"], 0.8 * self.saving_of_an_oracle())
        # The tolerance of verify. Six runs had 0.00 to 0.16 %.
        self.assertLess(verified["slowdown"]["estimate"], 0.002)


if __name__ == "__main__":
    unittest.main()
