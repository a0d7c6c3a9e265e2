"""The GPU of this process, and its streams, without waiting for them.

torch numbers GPUs from the fastest, and Perseus by their PCI addresses, so a GPU is named by its UUID.
A process that computes on the CPU has a GPU only if PERSEUS_DEVICES names virtual ones: then the
processes of a node have one each, in the order of LOCAL_RANK.

torch is not imported here. Nothing here creates a CUDA context before the program did.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Optional


def gpu_of(device: Any) -> Optional[str]:
    """The GPU of a torch.device, for the option `gpu` of perseus.open.

    A MIG instance is named as one ("MIG-…"). The session then says why it cannot be used.
    """
    if getattr(device, "type", str(device)) != "cuda":
        return os.environ.get("LOCAL_RANK") if _has_virtual_gpus() else None
    torch = sys.modules["torch"]
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    if uuid is None:  # An old version. The session then says which GPUs it can choose from.
        return None
    uuid = str(uuid)
    if uuid.startswith(("GPU-", "MIG-")):
        return uuid
    if getattr(getattr(torch, "version", None), "hip", None):
        uuid = _unique_id(uuid)
    # CUDA has the same form of UUID for both: only the name says "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
    is_mig = " MIG " in str(getattr(properties, "name", ""))
    return f"{'MIG' if is_mig else 'GPU'}-{uuid}"


def _unique_id(uuid: str) -> str:
    """The unique id of an AMD GPU, as the driver has it. HIP's UUID has its digits as characters."""
    try:
        text = bytes.fromhex(uuid.replace("-", "")).decode("ascii")
        int(text, 16)
    except ValueError:
        return uuid
    return text


def current_stream(device: Any) -> Optional[Callable[[], Any]]:
    """Returns the current CUDA stream at each call. None: the device is no GPU."""
    if getattr(device, "type", str(device)) != "cuda":
        return None
    return functools.partial(sys.modules["torch"].cuda.current_stream, device)


def is_capturing() -> bool:
    """Whether the current CUDA stream is being captured into a graph. False if it cannot be known."""
    torch = sys.modules.get("torch")
    try:  # Builds without CUDA have the function, and it raises.
        return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    except Exception:
        return False


def has_cuda() -> bool:
    """Whether this process computes on CUDA devices already."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def current_gpu() -> Optional[str]:
    """The GPU of this process, for frameworks that use the current CUDA device."""
    if not has_cuda():
        return gpu_of("cpu")
    torch = sys.modules["torch"]
    return gpu_of(torch.device("cuda", torch.cuda.current_device()))


def stream_of_current_gpu() -> Callable[[], Any]:
    """Returns the current stream of the current CUDA device at each call. None: there is none.

    The program may begin to use CUDA, and may choose the device, at any time. So each call looks.
    """

    def stream() -> Any:
        return sys.modules["torch"].cuda.current_stream() if has_cuda() else None

    return stream


def gpu_by_number(device_id: int) -> str:
    """The GPU that torch has this number for, or the virtual GPU of this number.

    Before the program uses CUDA, torch has no numbers: CUDA_VISIBLE_DEVICES may still change. The
    result is then the number itself, which counts along the PCI bus.
    """
    if has_cuda() and not _has_virtual_gpus():
        return gpu_of(sys.modules["torch"].device("cuda", device_id)) or str(device_id)
    return str(device_id)


def stream_by_number(device_id: int) -> Any:
    """The current stream of this device. None: the program does not use CUDA."""
    return sys.modules["torch"].cuda.current_stream(device_id) if has_cuda() else None


def _has_virtual_gpus() -> bool:
    return os.environ.get("PERSEUS_DEVICES", "").startswith("virtual:")
