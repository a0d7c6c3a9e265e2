"""torch.distributed.pipelining loads and runs the schedules of perseus schedule search."""

import os
import subprocess
import unittest

from observed import ScratchTest

RANKS = 4


class ScheduleSearchTest(ScratchTest):
    def test_losses_and_gradients_are_those_of_1f1b(self):
        for arguments in (
            f"synth --gpu a100 --stages {RANKS} -o profile.csv",
            "schedule search profile.csv --microbatches 8 --blocking-power 84 --more 0,1,3 -o schedules",
        ):
            command = [os.environ["PERSEUS_PROGRAM"], *arguments.split()]
            subprocess.run(command, cwd=self.scratch, check=True, stdout=subprocess.PIPE)
        for rank, found in self.observe(RANKS, "torch_schedule_search_worker.py"):
            self.assertEqual(sorted(found), ["1F1B", "more-0", "more-1", "more-3"])
            for name, training in found.items():
                with self.subTest(rank=rank, schedule=name):
                    self.assertEqual(training["hash"], found["1F1B"]["hash"])
            # torch runs the order of the file: one more forward before the first backward.
            if rank == 0:
                more = found["more-1"]["first_backward"] - found["1F1B"]["first_backward"]
                self.assertEqual(more, 1)


if __name__ == "__main__":
    unittest.main()
