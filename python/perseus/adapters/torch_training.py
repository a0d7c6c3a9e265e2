"""Training without a pipeline: one GPU, DDP, FSDP, tensor parallel, and the trainers on top of them.

A step ends with the step of the optimizer. In it, each microbatch has a forward and a backward:

    forward     from the first call of a module that the optimizer trains, until the backward of its
                loss begins
    backward    torch.autograd.backward, until the last gradient is computed. What it does after
                that is communication: there, DDP and FSDP wait for other ranks

What is replaced:
    torch.autograd.backward     Tensor.backward calls it, and so do GradScaler and the trainers
    model.__call__              of each module that has all trained parameters, and of the children
                                of the smallest one. The call that comes first counts. Modules inside
                                of a compiled one stay as they are, because it would compile again
    the global hooks of torch.optim say when an optimizer has stepped

auto() finds the modules after the first step of an optimizer, because only then the program has what
it trains. So the first step is not recorded. A process with a pipeline (another adapter), or with a
session of its own, is left alone.

Not used: hooks of nn.Module (a copy and a pickle of the module would have them, too).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from perseus import _session
from perseus.adapters import _outside, class_in
from perseus.adapters._devices import current_gpu, stream_of_current_gpu
from perseus.adapters._mesh import find_ranks_without_pipeline
from perseus.adapters._patches import Patches, function_of
from perseus.adapters._probe import Probe
from perseus.adapters._recorder import BACKWARD, FORWARD, Handle, Ranks, Recorder, is_recording
from perseus.adapters._warning import warn

MODULE = "torch.optim.optimizer"  # auto() is called when it was imported.

_MOST_UNSEEN = 3  # After that many steps that are not recorded, the rank says so.


def matches(target: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or class_in(target, "deepspeed.runtime.pipe") is not None:  # A pipeline.
        return False
    return isinstance(target, torch.nn.Module)


def attach(model: Any, mesh: Any, options: Mapping[str, Any]) -> Handle:
    """Attaches to a model, without waiting for the first step of its optimizer."""
    global _training
    if _training is not None and _training.recorder.is_attached:
        if _training.trains(model):
            return _training.handle
        warn("attach: another model of this process is attached (detach it first)")
        return Handle(None)
    if not _probe():
        return Handle(None)
    if _is_graph(model):
        warn("attach: a torch.fx.GraphModule changes its own class (attach the module around it)")
        return Handle(None)
    _training = _Training([model], mesh, options, is_auto=False)
    _listen()
    return _training.handle


def auto(module: Any) -> None:
    """Attaches to what the first optimizer of this process trains."""
    global _is_auto
    del module
    _is_auto = True
    _listen()


# What this process trains. None: not known yet.
_training: Optional[_Training] = None
_listens = False
_is_auto = False  # Whether to attach to what optimizers train.


def _listen() -> None:
    global _listens
    optim = sys.modules.get(MODULE)
    register = getattr(optim, "register_optimizer_step_post_hook", None)
    if not _listens and register is not None:
        _listens = True
        register(_stepped)


def _stepped(optimizer: Any, *_: Any) -> None:
    """The global hook: an optimizer has stepped."""
    global _training, _is_auto
    if _is_compiling():
        return
    try:
        if _training is not None and _training.is_over():
            _training.recorder.detach()
            _training = None  # The program trains another model.
        if _training is not None:
            _training.stepped()
        elif _is_auto:
            _is_auto = not is_recording() and not _session.was_opened and _probe()
            if _is_auto:
                _training = _Training(_modules_of(optimizer), None, {}, is_auto=True)
    except Exception:
        _is_auto = False
        warn("attach: an error of Perseus; nothing is attached", exc_info=True)


class _Training:
    """The recorder of what this process trains, and where in a step it is."""

    def __init__(
        self, modules: List[Any], mesh: Any, options: Mapping[str, Any], is_auto: bool
    ) -> None:
        self._modules = [weakref.ref(module) for module in modules]
        self._thread = threading.get_ident()

        def find_ranks() -> Ranks:
            found = [module for module in (one() for one in self._modules) if module is not None]
            dp_rank, tp_rank = find_ranks_without_pipeline(found, mesh)
            return Ranks(0, 1, (0,), dp_rank, tp_rank, current_gpu())

        self._find_ranks = find_ranks
        self.recorder = Recorder(
            _version(), find_ranks, options, modules=modules[:1], stream=stream_of_current_gpu()
        )
        self.handle = Handle(self.recorder)
        self._yields = is_auto  # To another adapter, and to a session of the program.
        self._microbatches = 0  # Forwards of this step.
        self._steps = 0  # How many optimizers have stepped since the last forward.
        self._steps_in_all = 1  # How many optimizers end a step.
        self._unseen = 0  # How many optimizers have stepped since the last recorded step.
        self._in_backward = False
        self._has_instructions = bool(modules)
        patches = self.recorder.patches
        try:
            for module in modules:
                patches.set_members(module, {"__call__": self._call(module)})
            autograd = sys.modules["torch"].autograd
            patches.set(autograd, "backward", self._backward(autograd.backward))
            if not modules:
                self.recorder.only_steps("no module has the parameters of the optimizer")
                self.recorder.step_begin(0)
        except Exception:
            self.recorder.detach()  # The modules that were patched already.
            raise

    def trains(self, model: Any) -> bool:
        return any(module() is model for module in self._modules)

    def is_over(self) -> bool:
        """Whether the model is gone."""
        return self._has_instructions and all(module() is None for module in self._modules)

    def _is_ours(self) -> bool:
        """False in another thread, and if the program or another adapter records by now."""
        if not self.recorder.is_attached or threading.get_ident() != self._thread:
            return False
        if self._yields and (_session.was_opened or is_recording(other_than=self.recorder)):
            self.recorder.detach()
            return False
        return True

    def stepped(self) -> None:
        """An optimizer has stepped. The last one ends the step."""
        if not self._is_ours():
            return
        self._steps += 1
        self._unseen = 0 if self.recorder.in_step else self._unseen + 1
        if self._unseen == _MOST_UNSEEN * self._steps_in_all:
            _outside.warn_once(
                _version(),
                "an optimizer steps, but no forward of its model is seen (is the model in eval mode?)",
                self._find_ranks,
                self.recorder.job_directory,
            )
        if self._steps >= self._steps_in_all:
            self._end_step()
            if not self._has_instructions:
                self.recorder.step_begin(0)

    def _end_step(self) -> None:
        self.recorder.step_end(self._microbatches)

    def _begin_forward(self) -> None:
        recorder = self.recorder
        if self._steps > 0:  # The first forward after a step.
            self._steps_in_all, self._steps = self._steps, 0
            self._end_step()  # If more optimizers stepped than before.
        if not recorder.in_step:
            recorder.step_begin(0)
            self._microbatches = 0
        if recorder.begin(FORWARD, self._microbatches, 0):
            self._microbatches += 1

    def _call(self, module: Any) -> Any:
        ours, recorder, cls = weakref.ref(module), self.recorder, type(module)
        is_grad_enabled = sys.modules["torch"].is_grad_enabled
        if "__call__" in vars(module):
            original = function_of(module, "__call__")
        else:
            # Looked up at each call, because torch.fx replaces the method of the class for a while.
            def original(module: Any, *arguments: Any, **named: Any) -> Any:
                return cls.__call__(module, *arguments, **named)

        @functools.wraps(cls.__call__)
        def __call__(module: Any, *arguments: Any, **named: Any) -> Any:
            if (
                _is_compiling()
                or recorder.has_open_instruction
                or module is not ours()
                or not module.training
                or not is_grad_enabled()
                or not self._is_ours()
            ):
                return original(module, *arguments, **named)
            self._begin_forward()
            try:
                return original(module, *arguments, **named)
            except BaseException:
                recorder.step_abandon()
                raise

        return __call__

    def _backward(self, original: Any) -> Any:
        recorder = self.recorder

        @functools.wraps(original)
        def backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if (
                _is_compiling()
                or not recorder.in_step
                or self._in_backward
                or not self._has_instructions
                or not self._is_ours()
            ):
                return original(tensors, *arguments, **named)
            recorder.end()  # The forward.
            if not recorder.begin(BACKWARD, self._microbatches - 1, 0):
                return original(tensors, *arguments, **named)
            handle = None
            try:
                self._in_backward = True
                handle = _end_with_the_last_gradient(tensors, recorder.end)
                return original(tensors, *arguments, **named)
            except BaseException:
                recorder.step_abandon()
                raise
            finally:
                self._in_backward = False
                recorder.end()
                if handle is not None:
                    handle.remove()

        return backward


def _end_with_the_last_gradient(tensors: Any, end: Any) -> Any:
    """Lets autograd call `end` when all gradients are computed, before what DDP and FSDP do then.

    Autograd calls what is queued in the order of the queue. The first gradient is that of the loss, so
    `end` is queued first. Returns the handle of the hook, or None.
    """
    torch = sys.modules["torch"]
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if not isinstance(first, torch.Tensor) or not first.requires_grad:
        return None
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def hook(_: Any) -> None:
        queue(end)

    return first.register_hook(hook)


def _is_compiling() -> bool:
    """Whether torch.compile traces this code, as part of a function of the program."""
    torch = sys.modules["torch"]
    return bool(torch.compiler.is_compiling())


# ---- What is trained ----


def _modules_of(optimizer: Any) -> List[Any]:
    """The modules with all parameters of the optimizer, and the children of the smallest one."""
    torch = sys.modules["torch"]
    trained = {
        id(parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    }
    if not trained:
        return []
    modules = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), torch.nn.Module) and "_modules" in vars(one)
    ]
    sizes: Dict[int, int] = {}
    for module in modules:
        with contextlib.suppress(Exception):  # A module that is made only in part.
            owned = {id(parameter) for parameter in module.parameters()}
            if trained <= owned:
                sizes[id(module)] = sum(1 for _ in module.modules())
    whole = sorted((one for one in modules if id(one) in sizes), key=lambda one: sizes[id(one)])
    compiled = _inside_compiled(modules)
    found = list(reversed(whole))
    for child in whole[0].children() if whole else ():
        if any(id(one) in trained for one in child.parameters()):
            found.append(child)
    return [one for one in found if id(one) not in compiled and not _is_graph(one)]


def _is_graph(module: Any) -> bool:
    """Whether a module changes its own class when it is compiled again."""
    return isinstance(module, getattr(sys.modules.get("torch.fx"), "GraphModule", ()))


def _inside_compiled(modules: Iterable[Any]) -> Set[int]:
    """The modules of which torch.compile may have compiled the call."""
    found: Set[int] = set()
    for module in modules:
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            inside = list(module.modules())
            is_wrapper = hasattr(module, "_orig_mod")
            found.update(id(one) for one in (inside[1:] if is_wrapper else inside))
    return found


def _probe() -> bool:
    torch = sys.modules["torch"]
    probe = Probe(_version())
    probe.method(torch.autograd, "backward", "tensors")
    engine = probe.attribute(torch.autograd.Variable, "_execution_engine")
    if engine is not None:
        probe.attribute(engine, "queue_callback")
    probe.method(sys.modules[MODULE], "register_optimizer_step_post_hook")
    return probe.report()


def _version() -> str:
    return f"torch {getattr(sys.modules.get('torch'), '__version__', '(unknown version)')}"
