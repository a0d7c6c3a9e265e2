"""The adapter of torch.distributed.pipelining, with real processes and every schedule class."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tiny_gpt

HERE = pathlib.Path(__file__).parent
KINDS = ["forward", "backward", "backward_input", "backward_weight", "recompute"]


def torchrun(ranks, script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         script, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def read_log(file):
    header, *steps = map(json.loads, file.read_text().splitlines())
    return header, steps


class SchedulesTest(unittest.TestCase):
    """On 2 and 4 ranks, each schedule class is run once with an observer."""

    def observe(self, ranks):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(ranks, HERE / "torch_worker.py", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [json.loads((results / f"{rank}.json").read_text()) for rank in range(ranks)]
        for name in [*tiny_gpt.SCHEDULES, "csv"]:
            for rank in range(ranks):
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    log = results / name / "ranks" / f"dp0-pp{rank}-tp0.jsonl"
                    self.check(found[rank][name], ranks, *read_log(log))

    def check(self, found, ranks, header, steps):
        self.assertTrue(found["is_attached"])
        self.assertEqual(header["stages"], found["stages"])
        self.assertEqual(header["pp_ranks"], ranks)
        # What Perseus recorded is what the observer saw, in each step.
        self.assertEqual(len(steps), found["steps"])
        for step in steps:
            recorded = [
                [KINDS[kind], microbatch, header["stages"][chunk]]
                for kind, microbatch, chunk, *_ in step["instructions"]
            ]
            self.assertEqual(recorded, found["order"])
        # Nothing that is computed changes, and every original is back.
        self.assertEqual(found["never"], found["attached"])
        self.assertEqual(found["never"], found["detached"])
        self.assertEqual(found["patched"], [])
        # A plan of this order is followed in every step, one with two exchanged microbatches in none.
        self.assertEqual(found["off_plan"], 0)
        self.assertEqual(found["off_swapped_plan"], found["steps"])

    def test_two_ranks(self):
        self.observe(2)

    def test_four_ranks(self):
        self.observe(4)


if __name__ == "__main__":
    unittest.main()
