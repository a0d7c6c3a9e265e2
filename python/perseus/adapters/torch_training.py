"""Training without a pipeline: one GPU, DDP, FSDP, tensor parallel, and the trainers on top of them.

A step ends with the step of the optimizer: of any, or of the one that attach() got. In it, each
microbatch has a forward and a backward:

    forward     from the first call of a module that the optimizer trains, until the backward of its
                loss begins
    backward    torch.autograd.backward, until the last gradient is computed. What it does after
                that is communication: there, DDP and FSDP wait for other ranks
    optimizer   from the begin of the first optimizer's step to the end of the last one's. Not if the
                optimizer gets a closure, because forward and backward then run inside of its step

Within a forward or a backward, a rank may wait for others, as FSDP does for the weights of each layer.
This time is recorded as waiting, and is no part of the instruction's own time. So ranks of different
speed show different times, although they end together.

What is replaced:
    torch.autograd.backward     Tensor.backward calls it, and so do GradScaler and the trainers
    model.__call__              of each module that has all trained parameters, and of the children
                                of the smallest one. The call that comes first counts. Modules inside
                                of a compiled one stay as they are, because it would compile again
    c10d.Work.wait, torch.cuda.Stream.wait_event and wait_stream: the points where an instruction
                waits for communication. If one of them is missing, its waiting counts as work
    the global hooks of torch.optim say when an optimizer steps

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
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

from perseus import _session
from perseus.adapters import _outside, class_in
from perseus.adapters._devices import current_gpu, stream_of_current_gpu
from perseus.adapters._mesh import find_ranks_without_pipeline
from perseus.adapters._patches import Patches, function_of
from perseus.adapters._probe import Probe
from perseus.adapters._recorder import (
    BACKWARD,
    FORWARD,
    OPTIMIZER_STEP,
    Handle,
    Ranks,
    Recorder,
    is_recording,
)
from perseus.adapters._warning import warn

MODULE = "torch.optim.optimizer"  # auto() is called when it was imported.

_MOST_UNSEEN = 3  # After that many steps that are not recorded, the rank says so.
_MOST_OTHERS = 100  # After that many steps of other optimizers in a row, too.


def matches(target: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or class_in(target, "deepspeed.runtime.pipe") is not None:  # A pipeline.
        return False
    return isinstance(target, torch.nn.Module)


def attach(model: Any, mesh: Any, options: Mapping[str, Any], optimizer: Any) -> Handle:
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
    optimizers = _optimizers_in(optimizer)
    if optimizers is None:
        warn(
            "attach: the second argument is no optimizer, because it has no param_groups; nothing is "
            "attached (pass the optimizer that trains the model, or mesh=... for a mesh)"
        )
        return Handle(None)
    _training = _Training([model], mesh, options, is_auto=False, optimizers=optimizers)
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
        register_before = getattr(optim, "register_optimizer_step_pre_hook", None)
        if register_before is not None:
            register_before(_steps)


def _steps(optimizer: Any, arguments: Any, named: Any) -> None:
    """The global hook: an optimizer begins to step. The first argument is the optimizer, too."""
    if _training is None or _is_compiling():
        return
    try:
        if not any(callable(one) for one in (*arguments[1:], *named.values())):  # A closure.
            _training.optimizer_begins(optimizer)
    except Exception:
        warn("attach: an error of Perseus", exc_info=True)


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
            _training.stepped(optimizer)
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
        self,
        modules: List[Any],
        mesh: Any,
        options: Mapping[str, Any],
        is_auto: bool,
        optimizers: Sequence[Any] = (),
    ) -> None:
        """`optimizers`: only their steps end a step. Empty: those of all optimizers."""
        self._modules = [weakref.ref(module) for module in modules]
        self._optimizers = [weakref.ref(one) for one in optimizers]
        # The ids of their parameters, because a wrapper is not the optimizer that steps.
        self._trained = {id(one) for optimizer in optimizers for one in _parameters_of(optimizer)}
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
        self._others = 0  # How many other optimizers have stepped since the last one of ours.
        self._in_backward = False
        self._has_instructions = bool(modules)
        patches = self.recorder.patches
        try:
            for module in modules:
                patches.set_members(module, {"__call__": self._call(module)})
            autograd = sys.modules["torch"].autograd
            patches.set(autograd, "backward", self._backward(autograd.backward))
            self._patch_waits(patches)
            if not modules:
                self.recorder.only_steps("no module has the parameters of the optimizer")
                self.recorder.step_begin(0)
        except Exception:
            self.recorder.detach()  # The modules that were patched already.
            raise

    def _patch_waits(self, patches: Patches) -> None:
        torch = sys.modules["torch"]
        recorder, thread = self.recorder, self._thread
        task_of_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)

        def is_on_stream(stream: Any) -> bool:
            return recorder.is_on(stream)

        def is_on_current_stream(_: Any) -> bool:
            return recorder.is_on_cpu or recorder.is_on(torch.cuda.current_stream())

        def replace(cls: Any, name: str, blocks: Any) -> None:
            original = vars(cls).get(name)
            if not callable(original):
                return

            @functools.wraps(original)
            def wait(waiter: Any, *arguments: Any, **named: Any) -> Any:
                # Backward on a GPU runs in a thread of autograd.
                is_ours = recorder.has_open_instruction and (
                    threading.get_ident() == thread or task_of_backward() >= 0
                )
                if not is_ours or _is_compiling() or not blocks(waiter):
                    return original(waiter, *arguments, **named)
                recorder.wait_begin()
                try:
                    return original(waiter, *arguments, **named)
                finally:
                    recorder.wait_end()

            patches.set(cls, name, wait)

        work = getattr(getattr(torch._C, "_distributed_c10d", None), "Work", None)
        if work is not None:
            replace(work, "wait", is_on_current_stream)
        replace(torch.cuda.Stream, "wait_event", is_on_stream)
        replace(torch.cuda.Stream, "wait_stream", is_on_stream)

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

    def _ends_steps(self, optimizer: Any) -> bool:
        if not self._optimizers or any(one() is optimizer for one in self._optimizers):
            return True
        firsts = (one for group in optimizer.param_groups for one in group["params"][:1])
        return any(id(one) in self._trained for one in firsts)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped. The last one ends the step."""
        if not self._is_ours():
            return
        if not self._ends_steps(optimizer):
            self._others += 1
            if self._others == _MOST_OTHERS:
                warn("attach: other optimizers step, but not the one of attach (is it in use?)")
            return
        self._others = 0
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

    def optimizer_begins(self, optimizer: Any) -> None:
        recorder = self.recorder
        is_next = recorder.in_step and not recorder.has_open_instruction
        if is_next and self._has_instructions and self._is_ours() and self._ends_steps(optimizer):
            recorder.begin(OPTIMIZER_STEP, 0, 0)

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


def _optimizers_in(optimizer: Any) -> Optional[List[Any]]:
    """The optimizers in an argument of attach(). None: it has something else."""
    if optimizer is None:
        return []
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    return optimizers if all(hasattr(one, "param_groups") for one in optimizers) else None


def _parameters_of(optimizer: Any) -> Iterator[Any]:
    return (one for group in optimizer.param_groups for one in group["params"])


def _modules_of(optimizer: Any) -> List[Any]:
    """The modules with all parameters of the optimizer, and the children of the smallest one."""
    torch = sys.modules["torch"]
    trained = {id(one) for one in _parameters_of(optimizer) if one.requires_grad}
    if not trained:
        return []
    modules = [
        one
        for one in _live_objects()
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


def _live_objects() -> List[Any]:
    """What the garbage collector tracks, and what gc.freeze() hides from it."""
    if gc.get_freeze_count() == 0:
        return gc.get_objects()
    gc.collect()  # Garbage that is frozen stays forever.
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


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
