"""What the tests of the adapters share: a training of real processes, with an observer in each.

A worker writes RESULTS/RANK.json: what its observer saw. Perseus writes rank logs beside it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
KINDS = ["forward", "backward", "backward_input", "backward_weight", "recompute"]


def hooks_of(owner):
    """The names of the members that an adapter has set on an object, or on a class for it alone."""
    names = [name for name, value in vars(owner).items() if hasattr(value, "_perseus_before")]
    for cls in type(owner).__mro__:
        if "_perseus_owner" in vars(cls):
            names += set(vars(cls)) - {name for name in vars(cls) if name.startswith("__")}
            names.remove("_perseus_owner")
    return sorted(names)


def torchrun(ranks, script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         script, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip


def read_log(file):
    header, *steps = map(json.loads, file.read_text().splitlines())
    return header, steps


class ObservedTest(unittest.TestCase):
    """A subclass names its worker, and calls observe() with 2 and with 4 ranks."""

    WORKER = ""

    def observe(self, ranks):
        """Yields the rank, what its observer saw, and a function that reads its log of a training."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(ranks, HERE / self.WORKER, results)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(ranks):
            found = json.loads((results / f"{rank}.json").read_text())
            log = pathlib.Path("ranks") / f"dp0-pp{rank}-tp0.jsonl"
            yield rank, found, lambda name, log=log: read_log(results / name / log)

    def check(self, found, ranks, stages, header, steps):
        self.assertTrue(found["is_attached"])
        self.assertEqual(header["stages"], stages)
        self.assertEqual(header["pp_ranks"], ranks)
        # What Perseus recorded is what the observer saw, in each step.
        self.assertGreater(found["steps"], 0)
        self.assertEqual(len(steps), found["steps"])
        for step in steps:
            recorded = [
                [KINDS[kind], microbatch, stages[chunk]]
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

    def check_ramp(self, found, counts, steps):
        """The number of microbatches changes: `counts` are the instructions of each step."""
        self.assertTrue(found["is_attached"])
        self.assertEqual([len(step["instructions"]) for step in steps], counts)


class TwoPipelinesTest(unittest.TestCase):
    """Two pipelines of two ranks with FSDP. A worker trains with each schedule with and without Perseus."""

    def check_two_pipelines(self, worker, schedules, steps):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(4, HERE / worker, results)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(4):
            observed = json.loads((results / f"{rank}.json").read_text())
            for name in schedules:
                with self.subTest(schedule=name, rank=rank):
                    self.check_schedule(observed[name], results / name, divmod(rank, 2), steps)

    def check_schedule(self, found, directory, ranks, count):
        self.assertTrue(found["is_attached"])
        self.assertTrue(found["is_same"])
        self.assertEqual(found["steps"], count)
        pp_rank, dp_rank = ranks
        header, steps = read_log(directory / "ranks" / f"dp{dp_rank}-pp{pp_rank}-tp0.jsonl")
        self.assertEqual(header["stages"], found["stages"])
        self.assertEqual(len(steps), count)
        for step in steps:
            recorded = [
                [KINDS[kind], microbatch, found["stages"][chunk]]
                for kind, microbatch, chunk, *_ in step["instructions"]
            ]
            self.assertEqual(recorded, found["order"])
