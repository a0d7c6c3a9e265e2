"""Training without a pipeline: what is recorded, and that training stays as it is."""

import copy
import os
import pickle
import subprocess
import sys
import threading
import unittest

import torch
from torch import nn

import perseus
from observed import EXAMPLES, HOOK, OFF, ScratchTest, hooks_of, read_log
from works import works

F0, B0, F1, B1 = ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)
O0 = ("optimizer_step", 0)
STEP = [F0, B0, F1, B1, O0]


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

    def attach(self, model, optimizer=None):
        handle = perseus.attach(model, optimizer, job_directory=self.scratch, **OFF)
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
        self.assertEqual(self.recorded_of(handle), [STEP] * 2)
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
        self.assertEqual(self.recorded_of(handle), [STEP] * 4)

    def test_an_exception_passes_and_its_step_is_not_recorded(self):
        model = Model()
        handle = self.attach(model)
        with self.assertRaises(RuntimeError):
            model(torch.zeros(1, 5))
        with self.assertRaises(RuntimeError):
            model(torch.zeros(1, 4)).backward()  # No scalar.
        train(model)
        self.assertEqual(self.recorded_of(handle), [STEP] * 2)

    def test_work_that_an_instruction_waits_for_is_waiting(self):
        c10d = torch._C._distributed_c10d
        before = c10d.Work.wait

        def wait(*_):
            future = torch.futures.Future()
            threading.Timer(0.02, lambda: future.set_result(None)).start()
            c10d._create_work_from_future(future).wait()

        model = Model()
        handle = self.attach(model)
        train(model)  # Nothing waits.
        model.first.register_forward_pre_hook(wait)
        train(model)
        wait()  # In no instruction.
        self.recorded_of(handle)
        _, steps = read_log(self.scratch / "ranks" / "dp0-pp0-tp0.jsonl")
        self.assertEqual([len(step.get("waits", [])) for step in steps], [0, 0, 2, 2])
        self.assertEqual(c10d.Work.wait, before)

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
        self.assertEqual(self.recorded_of(handle), [STEP] * 4)

    def test_only_the_given_optimizer_ends_a_step(self):
        """A discriminator steps twice in each step of the generator, and once within it."""
        generator, discriminator = Model(), nn.Linear(2, 1)
        ours, other = (torch.optim.Adam(one.parameters()) for one in (generator, discriminator))
        handle = self.attach(generator, ours)

        class Both(torch.optim.SGD):
            def step(self):
                other.step()
                ours.step()
                other.step()

        def loss():
            return discriminator(generator(torch.randn(3, 4))).sum()

        for _ in range(3):
            loss().backward()
            other.step()
            loss().backward()
            Both(discriminator.parameters()).step()
        self.assertEqual(self.recorded_of(handle), [STEP] * 3)

    def test_a_wrapper_is_the_optimizer_that_it_wraps(self):
        class Wrapper(torch.optim.Optimizer):  # As accelerate does it: also a step that skips.
            def __init__(self, optimizer):
                self.optimizer, self.calls = optimizer, 0

            @property
            def param_groups(self):
                return self.optimizer.param_groups

            def step(self):
                self.calls += 1
                if self.calls % 2 == 0:
                    self.optimizer.step()

        model = Model()
        wrapper = Wrapper(torch.optim.SGD(model.parameters()))
        handle = self.attach(model, wrapper)
        for _ in range(6):
            model(torch.ones(1, 4)).sum().backward()
            wrapper.step()
        self.assertEqual(self.recorded_of(handle), [STEP] * 3)

    def test_several_given_optimizers(self):
        model, other = Model(), Model()
        ours = [torch.optim.SGD(layer.parameters()) for layer in (model.first, model.second)]
        others = torch.optim.SGD(other.parameters())
        handle = self.attach(model, ours)
        for _ in range(4):
            model(torch.ones(1, 4)).sum().backward()
            for optimizer in (ours[0], others, ours[1], others):
                optimizer.step()
        self.assertEqual(self.recorded_of(handle), [[F0, B0, O0]] * 4)

    def test_what_is_no_optimizer_is_a_warning(self):
        with self.assertLogs("perseus", "WARNING") as logs:
            self.assertFalse(self.attach(Model(), "a mesh").is_attached)
        self.assertIn("no param_groups", "".join(logs.output))

    def test_an_optimizer_that_never_steps_is_a_warning(self):
        model = Model()
        self.attach(model, torch.optim.SGD(Model().parameters()))
        with self.assertLogs("perseus", "WARNING") as logs:
            train(model, steps=100, microbatches=1)
        self.assertIn("not the one of attach", "".join(logs.output))

    def test_a_closure_of_the_optimizer(self):
        model = Model()
        handle = self.attach(model)
        optimizer = torch.optim.SGD(model.parameters())

        def closure():
            loss = model(torch.ones(1, 4)).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        self.assertEqual(self.recorded_of(handle), [[F0, B0]] * 3)

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

    def test_a_class_that_registers_its_subclasses(self):
        registered = []

        class Registering(Model):
            def __init_subclass__(cls, *, name):
                registered.append(name)

        class Named(Registering, name="named"):
            pass

        model = Named()
        handle = self.attach(model)
        train(model)
        self.assertEqual(registered, ["named"])
        self.assertEqual(len(self.recorded_of(handle)), 2)

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
        self.assertEqual(self.recorded(), [STEP] * 4)

    def test_a_model_that_is_frozen_for_the_garbage_collector(self):
        program = self.scratch / "frozen.py"
        program.write_text(
            "import gc, torch\n"
            "model = torch.nn.Linear(2, 2)\n"
            "optimizer = torch.optim.SGD(model.parameters())\n"
            "gc.freeze()\n"
            "frozen = gc.get_freeze_count()\n"
            "for _ in range(3):\n"
            "    model(torch.ones(1, 2)).sum().backward()\n"
            "    optimizer.step()\n"
            "assert gc.get_freeze_count() >= frozen\n"
        )
        self.run_program(script=[program])
        self.assertEqual(self.recorded(), [[F0, B0, O0]] * 2)

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
        self.assertEqual(self.recorded(), [STEP] * 4)
        _, steps = read_log(self.scratch / "ranks" / "dp1-pp0-tp0.jsonl")
        return steps

    @works("torch", "DistributedDataParallel")
    def test_ddp(self):
        for step in self.check_two_processes("ddp"):
            self.assertNotIn("waits", step)  # It waits after the last gradient.

    @works("torch", "fully_shard (FSDP2)")
    def test_fsdp2(self):
        for step in self.check_two_processes("fsdp2"):
            for begin, duration in step["waits"]:
                within = [
                    of <= begin and begin + duration <= of + time
                    for _, _, _, of, time, _ in step["instructions"]
                ]
                self.assertEqual(sum(within), 1)

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
