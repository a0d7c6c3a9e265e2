"""Training without a pipeline: what is recorded, and that training stays as it is."""

import copy
import os
import pickle
import subprocess
import sys
import unittest

import torch
from torch import nn

import perseus
from observed import EXAMPLES, HOOK, OFF, ScratchTest, hooks_of
from works import works

F0, B0, F1, B1 = ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def train(model, optimizer=None, steps=2, microbatches=2):
    """Returns the losses."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(steps):
        for microbatch in range(microbatches):
            torch.manual_seed(10 * step + microbatch)
            loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
            losses.append(loss.item().hex())
        optimizer.step()
        optimizer.zero_grad()
    return losses


class TrainingTest(ScratchTest):
    def setUp(self):
        super().setUp()
        self.handles = []
        self.addCleanup(lambda: [handle.detach() for handle in self.handles])

    def attach(self, model):
        handle = perseus.attach(model, job_directory=self.scratch, **OFF)
        self.handles.append(handle)
        return handle

    def recorded_of(self, handle):
        handle.detach()
        return self.recorded()

    @works("torch", "training without a pipeline")
    def test_each_microbatch_is_a_forward_and_a_backward_and_the_losses_are_the_same(self):
        expected = train(Model())
        model = Model()
        handle = self.attach(model)
        self.assertEqual(train(model), expected)
        self.assertTrue(handle.is_attached)
        self.assertEqual(self.recorded_of(handle), [[F0, B0, F1, B1]] * 2)
        self.assertEqual(hooks_of(model), [])
        self.assertFalse(hasattr(torch.autograd.backward, "_perseus_before"))

    def test_an_evaluation_is_not_recorded(self):
        model = Model()
        handle = self.attach(model)
        train(model)
        with torch.no_grad():
            model(torch.zeros(1, 4))
        model.eval()
        model(torch.zeros(1, 4))
        model.train()
        train(model)
        self.assertEqual(self.recorded_of(handle), [[F0, B0, F1, B1]] * 4)

    def test_an_exception_passes_and_its_step_is_not_recorded(self):
        model = Model()
        handle = self.attach(model)
        with self.assertRaises(RuntimeError):
            model(torch.zeros(1, 5))
        with self.assertRaises(RuntimeError):
            model(torch.zeros(1, 4)).backward()  # No scalar.
        train(model)
        self.assertEqual(self.recorded_of(handle), [[F0, B0, F1, B1]] * 2)

    def test_copies_and_pickles_are_not_attached(self):
        model = Model()
        handle = self.attach(model)
        train(model)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertIs(type(other), Model)
        self.assertEqual(len(self.recorded_of(handle)), 2)

    def test_several_optimizers_end_one_step(self):
        model = Model()
        optimizers = [torch.optim.SGD(layer.parameters()) for layer in (model.first, model.second)]

        class Both:
            def step(self):
                for one in optimizers:
                    one.step()

            def zero_grad(self):
                model.zero_grad()

        handle = self.attach(model)
        train(model, Both(), steps=4)
        self.assertEqual(self.recorded_of(handle), [[F0, B0, F1, B1]] * 4)

    def test_an_optimizer_in_the_backward(self):
        model = Model()
        optimizers = {one: torch.optim.SGD([one]) for one in model.parameters()}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda one: optimizers[one].step())

        class Nothing:
            def step(self):
                pass

            def zero_grad(self):
                model.zero_grad()

        handle = self.attach(model)
        train(model, Nothing(), steps=5, microbatches=1)
        self.assertEqual(self.recorded_of(handle)[-3:], [[F0, B0]] * 3)

    def test_backward_of_a_generator_has_all_gradients(self):
        gradients = []
        for attached in (False, True):
            model = Model()
            if attached:
                self.attach(model)
            losses = [model(torch.ones(1, 4)).sum(), model(torch.zeros(1, 4)).sum()]
            torch.autograd.backward(loss for loss in losses)
            gradients.append([parameter.grad.tolist() for parameter in model.parameters()])
        self.assertEqual(gradients[0], gradients[1])

    def test_the_class_of_an_attached_model_is_its_own(self):
        model = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        handle = self.attach(model)
        model(torch.ones(1, 2)).sum().backward()
        self.assertEqual(type(model).__name__, "ParametrizedLinear")
        torch.nn.utils.parametrize.remove_parametrizations(model, "weight")
        self.assertIs(model.__class__, nn.Linear)
        handle.detach()
        self.assertIs(type(model), nn.Linear)

    def test_another_model_is_not_attached_without_a_word(self):
        first, second = Model(), Model()
        self.assertIs(self.attach(first), self.attach(first))
        with self.assertLogs("perseus", "WARNING"):
            self.assertFalse(self.attach(second).is_attached)

    def test_a_model_in_eval_mode_is_a_warning(self):
        model = Model().eval()
        self.attach(model)
        with self.assertLogs("perseus", "WARNING") as logs:
            train(model, steps=5)
        self.assertIn("no forward of its model is seen", "".join(logs.output))

    def test_fx_traces_an_attached_model_as_before(self):
        def nodes(model):
            return [node.op for node in torch.fx.symbolic_trace(model).graph.nodes]

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)

            def forward(self, x):
                return self.inner(x)

        model = Outer()
        expected = nodes(model)
        self.attach(model.inner)
        self.assertEqual(nodes(model), expected)

    def test_a_compiled_function_that_calls_the_model(self):
        model = Model()
        compilations = []

        def backend(module, _):
            compilations.append(module)
            return module.forward

        @torch.compile(backend=backend, fullgraph=True)
        def loss_of(x):
            return model(x).square().mean()

        handle = self.attach(model)
        for _ in range(3):
            loss_of(torch.ones(1, 4)).backward()
        self.assertEqual(len(compilations), 1)
        self.assertTrue(handle.is_attached)

    @works("torch", "training without a pipeline: torch.compile")
    def test_compiled_models_do_not_compile_again(self):
        compilations = []

        def backend(module, _):
            compilations.append(module)
            return module.forward

        for number, compile_in_place in enumerate((False, True)):
            with self.subTest(in_place=compile_in_place):
                torch._dynamo.reset()
                compilations.clear()
                model = Model()
                if compile_in_place:
                    model.compile(backend=backend)
                else:
                    model = torch.compile(model, backend=backend)
                handle = self.attach(model)
                train(model, steps=4)
                self.assertEqual(len(compilations), 1)
                self.assertEqual(len(self.recorded_of(handle)), 4 * number + 4)


class UnchangedProgramTest(ScratchTest):
    """The import hook attaches at the first step of an optimizer."""

    def run_program(self, *arguments, script=None):
        script = script or [EXAMPLES / "torch_training" / "train.py", "--steps=5", "--accumulate=2"]
        done = subprocess.run(
            [sys.executable, *script, *arguments],
            env={**os.environ, "PERSEUS_ATTACH": "auto", "PERSEUS_AGENT": "off",
                 "PERSEUS_DEVICES": "off", "PERSEUS_JOB_DIR": str(self.scratch),
                 "PYTHONPATH": f"{HOOK}:{os.environ['PYTHONPATH']}"},
            capture_output=True,
            text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_one_process(self):
        done = self.run_program()
        self.assertNotIn("perseus:", done.stderr)
        self.assertEqual(self.recorded(), [[F0, B0, F1, B1]] * 4)

    def test_a_pipeline_whose_optimizer_steps_before_it_is_recorded_as_one(self):
        """As get_optimizer_state_dict() does before a checkpoint is loaded."""
        program = self.scratch / "pipeline.py"
        program.write_text(
            "import torch, torch.distributed as dist\n"
            "from torch.distributed.pipelining import PipelineStage, ScheduleGPipe\n"
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
            "module = torch.nn.Linear(2, 2)\n"
            "optimizer = torch.optim.SGD(module.parameters())\n"
            "optimizer.step()\n"
            "stage = PipelineStage(module, 0, 1, torch.device('cpu'))\n"
            "schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, x: (y - x).square().mean())\n"
            "for _ in range(3):\n"
            "    schedule.step(torch.ones(4, 2), target=torch.zeros(4, 2))\n"
            "    optimizer.step()\n"
            "dist.destroy_process_group()\n"
        )
        self.run_program(script=[program])
        self.assertEqual(self.recorded(), [[F0, F1, B0, B1]] * 3)

    def test_parameters_without_a_module_are_whole_steps(self):
        program = self.scratch / "own.py"
        program.write_text(
            "import torch\n"
            "weight = torch.zeros(2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([weight])\n"
            "for _ in range(4):\n"
            "    weight.square().sum().backward()\n"
            "    optimizer.step()\n"
        )
        done = self.run_program(script=[program])
        self.assertIn("only whole steps are measured", done.stderr)
        self.assertEqual(self.recorded(), [[]] * 3)

    def check_two_processes(self, wrap):
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        example = [EXAMPLES / "torch_training" / "train.py", "--steps=5", "--accumulate=2"]
        self.run_program(f"--wrap={wrap}", script=[*torchrun, *example])
        self.assertEqual(self.recorded(), [[F0, B0, F1, B1]] * 4)
        self.assertTrue((self.scratch / "ranks" / "dp1-pp0-tp0.jsonl").exists())

    @works("torch", "DistributedDataParallel")
    def test_ddp(self):
        self.check_two_processes("ddp")

    @works("torch", "fully_shard (FSDP2)")
    def test_fsdp2(self):
        self.check_two_processes("fsdp2")

    def test_a_program_with_its_own_session_is_left_alone(self):
        program = self.scratch / "own.py"
        program.write_text(
            "import torch, perseus\n"
            "model = torch.nn.Linear(2, 2)\n"
            "optimizer = torch.optim.SGD(model.parameters())\n"
            "perseus.open()\n"
            "for _ in range(3):\n"
            "    with perseus.step():\n"
            "        with perseus.instruction('forward', 0): loss = model(torch.ones(1, 2)).sum()\n"
            "        with perseus.instruction('backward', 0): loss.backward()\n"
            "    optimizer.step()\n"
        )
        self.run_program(script=[program])
        self.assertEqual(self.recorded(), [[F0, B0]] * 3)


if __name__ == "__main__":
    unittest.main()
