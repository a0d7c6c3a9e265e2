"""Virtual GPUs under a real training framework, for tests and tutorials without a GPU.

    layer = perseus.virtual.layer("truth.csv", stage=rank)      # A torch.nn.Module.

A module that contains this layer takes, in its forward and in its backward, the time that the
profile has for the clock that the virtual GPU has right now, and the GPU draws the energy. So the
job behaves like one on a real GPU: slower at a lower clock, no matter which process has set it. The
layer knows nothing of the hooks of Perseus. So a test with it also shows whether the hooks are in
the right places: if they were not, the measured times and energies would be wrong.

The virtual GPU belongs to a node that PERSEUS_DEVICES names (virtual:FILE), and its number is the
environment variable LOCAL_RANK, which torchrun sets. With `clock` in the description of the node,
the job runs in virtual time: time stands still while a process of the job computes on the CPU, and
jumps while all of them wait. Without it, time is real time. Then a process may be woken some tenths
of a millisecond late, so instructions should take tens of milliseconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Union

from perseus import _virtual

if TYPE_CHECKING:
    import torch

    from perseus._virtual import Instruction

PathLike = Union[str, "os.PathLike[str]"]


class Profile:
    """The times and energies of the instructions of a job, from a CSV file."""

    def __init__(self, path: PathLike) -> None:
        self._profile = _virtual.load_profile(os.fsencode(path))

    def find(self, stage: int, kind: str, chunk: int) -> Optional[Instruction]:
        """Returns None if the profile does not have this instruction."""
        return _virtual.find(self._profile, stage, kind, chunk)


class Gpu:
    """A virtual GPU that only this process computes on."""

    def __init__(self, description: PathLike, gpu: int) -> None:
        self._gpu = _virtual.open_gpu(os.fsencode(description), gpu)

    def compute(self, instruction: Instruction) -> None:
        """Waits until the GPU has done the instruction."""
        _virtual.compute(self._gpu, instruction)

    def throttle(self, clock_mhz: Optional[int]) -> None:
        """Holds the clock of the GPU down, as heat does. None: no longer."""
        _virtual.throttle(self._gpu, clock_mhz)


_gpu: Optional[Gpu] = None


def is_available() -> bool:
    """Whether PERSEUS_DEVICES names a node of virtual GPUs."""
    return os.environ.get("PERSEUS_DEVICES", "").startswith("virtual:")


def gpu() -> Gpu:
    """The virtual GPU of this process. Its method compute(instruction) waits until it is done.

    Raises:
        ValueError: PERSEUS_DEVICES names no virtual node, or another process computes on this GPU.
    """
    global _gpu
    if _gpu is None:
        if not is_available():
            raise ValueError("no virtual node (set PERSEUS_DEVICES=virtual:node.toml)")
        node = os.environ["PERSEUS_DEVICES"].partition(":")[2]
        _gpu = Gpu(node, int(os.environ.get("LOCAL_RANK", "0")))
    return _gpu


def optimizer_step(optimizer: torch.optim.Optimizer, profile: PathLike, stage: int) -> None:
    """Occupies the virtual GPU while the optimizer steps, if the profile has an optimizer_step.

    Args:
        optimizer: The optimizer.
        profile: As for layer().
        stage: The row `stage` of the profile.
    """
    instruction = Profile(profile).find(stage, "optimizer_step", 0)
    if instruction is not None:
        device, step = gpu(), instruction
        optimizer.register_step_pre_hook(lambda *_: device.compute(step))


def layer(profile: PathLike, stage: int, chunk: int = 0) -> torch.nn.Module:
    """A layer that adds one parameter to its input, and occupies the virtual GPU.

    Args:
        profile: The CSV with the times and energies of the instructions. If it has
            backward_input and backward_weight, each occupies the GPU where autograd computes these
            gradients. If it has backward, that occupies the GPU with the gradient of the input.
        stage: The row `stage` of the profile, which is the pp_rank if it has chunks.
        chunk: Which model chunk of the pp_rank.
    """
    import torch

    table = Profile(profile)
    forward, backward, dgrad, wgrad = (
        table.find(stage, kind, chunk)
        for kind in ("forward", "backward", "backward_input", "backward_weight")
    )
    if forward is None:
        raise ValueError(f"{os.fspath(profile)} has no forward of stage {stage} chunk {chunk}")
    device = gpu()

    def occupy(after: Any) -> Any:
        """Returns the identity function whose backward occupies the GPU."""

        class Occupy(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                if after is not None:
                    device.compute(after)
                return gradient

        return Occupy

    # The gradient of the input and that of the parameter are on different paths of the graph, so
    # autograd computes them apart if the schedule splits the backward.
    of_input, of_weight = occupy(dgrad or backward), occupy(wgrad)

    class VirtualLayer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            device.compute(forward)
            return of_input.apply(x) + of_weight.apply(self.bias)

    return VirtualLayer()
