"""The adapter of DeepSpeed, with real processes."""

import json
import pathlib
import tempfile
import unittest

from torch_test import HERE, KINDS, read_log, torchrun


class EngineTest(unittest.TestCase):
    def observe(self, ranks):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(ranks, HERE / "deepspeed_worker.py", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(ranks):
            found = json.loads((results / f"{rank}.json").read_text())
            log = f"ranks/dp0-pp{rank}-tp0.jsonl"
            for name in {"1F1B", "DualPipeV"} & set(found):
                with self.subTest(schedule=name, rank=rank, ranks=ranks):
                    self.check(found[name], ranks, *read_log(results / name / log))
            with self.subTest("the number of microbatches changes", rank=rank, ranks=ranks):
                self.check_ramp(found["ramp"], *read_log(results / "ramp" / log))

    def check(self, found, ranks, header, steps):
        self.assertTrue(found["is_attached"])
        self.assertEqual(header["pp_ranks"], ranks)
        self.assertEqual(header["stages"], sorted({stage for _, _, stage in found["order"]}))
        self.assertEqual(len(steps), 4)
        self.assertEqual(found["steps"], 4)
        # Perseus recorded what DeepSpeed's schedule claims, and what autograd ran.
        for step in steps:
            recorded = [
                [KINDS[kind], microbatch, header["stages"][chunk]]
                for kind, microbatch, chunk, *_ in step["instructions"]
            ]
            self.assertEqual(recorded, found["order"])
        blocks = len(found["kinds"]) // len(found["order"])
        self.assertEqual(found["kinds"][::blocks], [kind for kind, _, _ in found["order"]])
        # Nothing that is computed changes, and every original is back.
        self.assertEqual(found["never"], found["attached"])
        self.assertEqual(found["never"], found["detached"])
        self.assertEqual(found["patched"], [])
        self.assertEqual(found["off_plan"], 0)
        self.assertEqual(found["off_swapped_plan"], 4)

    def check_ramp(self, found, header, steps):
        self.assertTrue(found["is_attached"])
        self.assertEqual([len(step["instructions"]) for step in steps], [8, 8, 16, 16])

    def test_two_ranks(self):
        self.observe(2)

    def test_four_ranks(self):
        self.observe(4)


if __name__ == "__main__":
    unittest.main()
