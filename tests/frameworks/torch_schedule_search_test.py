"""torch.distributed.pipelining loads and runs the schedules of perseus schedule search."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from observed import HERE, torchrun

RANKS = 4


class ScheduleSearchTest(unittest.TestCase):
    def test_losses_and_gradients_are_those_of_1f1b(self):
        with tempfile.TemporaryDirectory() as directory:
            results = pathlib.Path(directory)
            for arguments in (
                f"synth --gpu a100 --stages {RANKS} -o profile.csv",
                "schedule search profile.csv --microbatches 8 --blocking-power 84 --more 0,1,3 "
                "-o schedules",
            ):
                program = os.environ["PERSEUS_PROGRAM"]
                subprocess.run(
                    [program, *arguments.split()], cwd=results, check=True, stdout=subprocess.PIPE
                )
            done = torchrun(RANKS, HERE / "torch_schedule_search_worker.py", results)
            self.assertEqual(done.returncode, 0, done.stderr)
            for rank in range(RANKS):
                found = json.loads((results / f"{rank}.json").read_text())
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
