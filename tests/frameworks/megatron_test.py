"""The adapter of Megatron-core, with real processes."""

import json
import pathlib
import tempfile
import unittest

from torch_test import HERE, KINDS, read_log, torchrun


class SchedulesTest(unittest.TestCase):
    def observe(self, ranks):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(ranks, HERE / "megatron_worker.py", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(ranks):
            found = json.loads((results / f"{rank}.json").read_text())
            log = f"ranks/dp0-pp{rank}-tp0.jsonl"
            for name, chunks in [("1F1B", 1), ("interleaved", 2)]:
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    stages = [chunk * ranks + rank for chunk in range(chunks)]
                    header, steps = read_log(results / name / log)
                    self.assertEqual((header["pp_ranks"], header["stages"]), (ranks, stages))
                    self.check(found[name], stages, steps)
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                self.assertTrue(found["ramp"]["is_attached"])
                _, steps = read_log(results / "ramp" / log)
                self.assertEqual([len(step["instructions"]) for step in steps], [16, 16, 32, 32])

    def check(self, found, stages, steps):
        self.assertTrue(found["is_attached"])
        self.assertEqual(len(steps), 4)
        self.assertEqual(found["steps"], 4)
        # Perseus recorded what autograd ran, and what the table of Megatron-core claims.
        self.assertEqual(found["order"], found["claimed"])
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
        self.assertEqual(found["off_plan"], 0)
        self.assertEqual(found["off_swapped_plan"], 4)

    def test_two_ranks(self):
        self.observe(2)

    def test_four_ranks(self):
        self.observe(4)


if __name__ == "__main__":
    unittest.main()
