"""Pipeline and FSDP on four ranks, built and called as torchtitan does. torchtitan needs GPUs."""

import json
import pathlib
import tempfile
import unittest

from observed import HERE, KINDS, read_log, torchrun
from torchtitan_worker import ACCUMULATION, FSDP, OPTIMIZER_STEPS, PP, SCHEDULES
from works import works


class TorchtitanTest(unittest.TestCase):
    @works(
        "torch",
        "the calls of torchtitan: its meshes, FSDP, 1F1B, Interleaved1F1B, ZBVZeroBubble, CSV, "
        "accumulation, evaluation; 4 ranks",
    )
    def test_two_pipelines_of_two_ranks(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        results = pathlib.Path(directory.name)
        done = torchrun(PP * FSDP, HERE / "torchtitan_worker.py", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(PP * FSDP):
            pp_rank, dp_rank = divmod(rank, FSDP)
            observed = json.loads((results / f"{rank}.json").read_text())
            for name in SCHEDULES:
                with self.subTest(schedule=name, rank=rank):
                    found = observed[name]
                    self.assertTrue(found["is_attached"])
                    self.assertTrue(found["is_same"])
                    self.assertEqual(found["steps"], OPTIMIZER_STEPS * ACCUMULATION)
                    log = results / name / "ranks" / f"dp{dp_rank}-pp{pp_rank}-tp0.jsonl"
                    header, steps = read_log(log)
                    self.assertEqual(header["stages"], found["stages"])
                    self.assertEqual(len(steps), found["steps"])
                    for step in steps:
                        recorded = [
                            [KINDS[kind], microbatch, found["stages"][chunk]]
                            for kind, microbatch, chunk, *_ in step["instructions"]
                        ]
                        self.assertEqual(recorded, found["order"])


if __name__ == "__main__":
    unittest.main()
