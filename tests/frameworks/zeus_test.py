"""The class with the signature of Zeus' PipelineFrequencyOptimizer."""

import ast
import importlib.util
import inspect
import os
import pathlib
import sys
import types
import unittest
from unittest import mock

from perseus.adapters import zeus
from perseus.adapters.zeus import PipelineFrequencyOptimizer
from observed import KINDS, ScratchTest, read_log
from works import works

ARGUMENTS = {
    "rank": 5, "dp_rank": 1, "pp_rank": 2, "tp_rank": 0, "device_id": 0, "dp_degree": 2,
    "pp_degree": 4, "tp_degree": 1, "world_size": 8, "server_url": "http://localhost:7787",
}  # fmt: skip


def methods_of(file, name):
    """The parameters of the methods of a class, by method."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {
                method.name: [argument.arg for argument in method.args.args]
                for method in node.body
                if isinstance(method, ast.FunctionDef)
            }
    raise AssertionError(f"{file} has no class {name}")


class ZeusTest(ScratchTest):
    def setUp(self):
        super().setUp()
        environment = {"PERSEUS_AGENT": "off", "PERSEUS_DEVICES": "off",
                       "PERSEUS_JOB_DIR": str(self.scratch)}  # fmt: skip
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    def test_signatures(self):
        """Each method has the parameters that it has in Zeus."""
        # The test reads the source, because importing it needs packages that only the Zeus server
        # needs.
        package = pathlib.Path(importlib.util.find_spec("zeus").origin).parent
        methods = {**methods_of(package / "callback.py", "Callback"),
                   **methods_of(package / "optimizer/pipeline_frequency/optimizer.py",
                                "PipelineFrequencyOptimizer")}  # fmt: skip
        public = {name for name in methods if name == "__init__" or name.startswith("on_")}
        self.assertGreater(len(public), 8)
        for name in public:
            with self.subTest(name):
                ours = inspect.signature(getattr(PipelineFrequencyOptimizer, name))
                self.assertEqual(list(ours.parameters), methods[name])

    @works("zeus", "the hooks of PipelineFrequencyOptimizer")
    def test_it_records(self):
        optimizer = PipelineFrequencyOptimizer(**ARGUMENTS, job_metadata="mine")
        order = ["forward", "forward", "backward", "forward", "backward", "backward"]
        optimizer.on_train_begin()
        for _ in range(3):
            optimizer.on_step_begin()
            for name in order:
                optimizer.on_instruction_begin(name)
                optimizer.on_instruction_end(name)
            optimizer.on_step_end()
        optimizer.on_evaluate(0.5)
        self.assertEqual(optimizer.session.counters.steps, 3)
        optimizer.session.close()
        header, steps = read_log(self.scratch / "ranks" / "dp1-pp2-tp0.jsonl")
        self.assertEqual((header["pp_ranks"], header["stages"]), (4, [2]))
        numbers = [0, 1, 0, 2, 1, 2]
        for step in steps:
            recorded = [(KINDS[kind], microbatch) for kind, microbatch, *_ in step["instructions"]]
            self.assertEqual(recorded, list(zip(order, numbers)))

    def test_the_gpu_and_the_stream_are_those_of_the_first_step(self):
        """The program chooses its visible GPUs and begins to use CUDA after the constructor."""
        cuda = types.SimpleNamespace(
            is_initialized=lambda: is_initialized,
            is_available=lambda: True,
            current_device=lambda: 0,
            current_stream=lambda device: types.SimpleNamespace(cuda_stream=0, device_index=device),
            device=mock.MagicMock(),
            get_device_properties=lambda device: types.SimpleNamespace(uuid=f"uuid-{device.index}"),
        )
        torch = types.SimpleNamespace(
            cuda=cuda, device=lambda kind, index: types.SimpleNamespace(type=kind, index=index)
        )
        is_initialized = False
        with mock.patch.dict(sys.modules, torch=torch), mock.patch.object(
            zeus._client, "Session"
        ) as session:
            optimizer = PipelineFrequencyOptimizer(**{**ARGUMENTS, "device_id": 3})
            session.assert_not_called()
            is_initialized = True
            optimizer.on_step_begin()
            optimizer.on_instruction_begin("forward")
        self.assertEqual(session.call_args.kwargs["gpu"], "GPU-uuid-3")
        begun = session.return_value.instruction_begin.call_args
        self.assertEqual(begun.args, ("forward",))
        self.assertEqual(begun.kwargs["stream"].device_index, 3)

    def test_it_never_raises(self):
        with self.assertLogs("perseus") as logs:
            optimizer = PipelineFrequencyOptimizer(**{**ARGUMENTS, "dp_rank": "one"})
            for _ in range(2):
                optimizer.on_step_begin()
                optimizer.on_instruction_begin("forward")
        self.assertEqual(len(logs.output), 1)
        self.assertIn("training runs without Perseus", logs.output[0])
        for broken in (optimizer, PipelineFrequencyOptimizer(**ARGUMENTS)):
            broken.on_instruction_end("forward")
            broken.on_step_end()
            broken.on_instruction_begin("dance")
            broken.on_step_begin()
            broken.on_step_begin()
            broken.on_instruction_begin(None)
            broken.on_instruction_end(None)
            broken.on_step_end()


if __name__ == "__main__":
    unittest.main()
