"""Attaches Perseus to a training framework, so that the training program stays as it is.

    handle = perseus.attach(schedule)         # torch.distributed.pipelining
    handle = perseus.attach(engine)           # DeepSpeed's PipelineEngine
    handle = perseus.attach("megatron")       # Megatron-core, before get_forward_backward_func()
    handle = perseus.attach(model, optimizer) # Training without a pipeline
    handle.detach()                           # Every original is back.

How it works. Every framework calls a function for each forward and each backward of a microbatch.
The adapter of a framework replaces these functions, on the objects of the job, by functions that
mark the instruction, call the original, and mark its end. docs/frameworks.md is for users. This is
for those who write an adapter:

    adapters/torch_pipelining.py     one module for each framework: matches(), attach(), auto()
    adapters/_probe.py               checks that the framework has what the adapter needs
    adapters/_patches.py             replaces attributes and map entries, and puts them back
    adapters/_recorder.py            the session of an attached pipeline: ranks, steps, instructions
    hook/sitecustomize.py            `perseus run`: attaches when a framework is imported

Rules that every adapter keeps:
 1. Never in the way. Perseus's own errors are caught and logged once, and the adapter detaches.
    Exceptions of the framework and of the model pass unchanged, and the step is abandoned.
 2. No collective, no device synchronization, no import of a framework. A collective at attach would
    hang the other ranks if one rank fails open.
 3. No tensor lives longer. A wrapper holds its arguments only while the original runs, and the
    patches hold no strong reference to a schedule, a stage or an engine.
 4. Features are probed, not version numbers. If something is missing, nothing is attached, and one
    warning says what was expected, what was found, and how to place hooks by hand.
 5. The adapter proves itself. In the first steps it counts the forwards and the backwards of each
    stage. If they are not the number of microbatches, it detaches with a warning.
 6. What may wait happens once, at the first training step: the session opens. That takes
    milliseconds, or at most 20 s if the agent hangs. It is not deferred to a thread, because the
    step numbers of all ranks must agree: assignments begin at a step number.

An adapter's module has three functions: matches(target) (cheap; looks only at class names),
attach(target, mesh, options) -> Handle, and auto(module), which the import hook calls after the
framework's module was loaded. Without a pipeline, attach() gets the optimizer, too.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

from perseus.adapters._recorder import Handle
from perseus.adapters._warning import warn

__all__ = ["Handle", "attach"]

# The modules of this package. attach() asks them in this order.
FRAMEWORKS = ("torch_pipelining", "deepspeed", "megatron", "torch_training")


def attach(target: Any, optimizer: Any = None, *, mesh: Any = None, **options: Any) -> Handle:
    """Marks the steps and the instructions of a training, until `detach()` of the result.

    Never raises. If the framework lacks something that the adapter needs, a warning of the logger
    "perseus" says what, and training continues unattached.

    Args:
        target: A schedule of torch.distributed.pipelining, a PipelineEngine of DeepSpeed, "megatron"
            for the schedules of Megatron-core in this process, or a torch.nn.Module that is trained
            without a pipeline.
        optimizer: Only for a module: the optimizer whose step ends a step of the training, or a list
            of several. A wrapper counts as the optimizer that it wraps, because both have the same
            parameters. Other optimizers (of a discriminator, for example) end no step. Without it,
            each optimizer of this process does. A pipeline ends its own steps.
        mesh: The DeviceMesh of the job. It says which data-parallel and tensor-parallel rank this
            process is. Its pipeline dimension is named "pp"; "tp", "cp", "sp" and "ep" count as
            tensor parallel, all others as data parallel. Without a mesh, the ranks come from
            DTensor parameters of the stages, or else from the process group of the pipeline.
        options: Arguments of `perseus.open`, which take precedence over what the framework says.

    Returns:
        A handle. `is_attached` says whether something is attached. The session opens at the first
        training step.
    """
    try:
        for name in FRAMEWORKS:
            framework = importlib.import_module(f"perseus.adapters.{name}")
            if not framework.matches(target):
                continue
            if name == "torch_training":
                return framework.attach(target, mesh, options, optimizer)
            if optimizer is not None:
                warn("attach: a pipeline ends its own steps; the optimizer is ignored")
            return framework.attach(target, mesh, options)
    except Exception:
        warn("attach: an error of Perseus; nothing is attached", exc_info=True)
        return Handle(None)
    warn(
        "attach: %s is of no supported framework; nothing is attached (see docs/frameworks.md, or "
        "use perseus.step and perseus.instruction)",
        _describe(target),
    )
    return Handle(None)


def _describe(target: Any) -> str:
    if isinstance(target, str):
        return repr(target)
    return f"an object of {type(target).__module__}.{type(target).__qualname__}"


def class_in(target: Any, package: str) -> Optional[type]:
    """The first class of the object, most derived first, that a module of that package defines."""
    for cls in type(target).__mro__:
        if cls.__module__ == package or cls.__module__.startswith(package + "."):
            return cls
    return None
