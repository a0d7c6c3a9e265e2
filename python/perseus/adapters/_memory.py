"""Measures the GPU memory of the activations of a microbatch, with the counters of torch's allocator.

The counters belong to the CPU, so reading them waits for nothing on the GPU. What a forward keeps
for its backward is the memory that it has allocated more at its end than at its begin. The model
(weights, gradients, optimizer states) is what is allocated when a step begins: the first steps do
not count, because an optimizer allocates its states in its first step.

After the measured steps, JOBDIR/ranks/dp0-pp3-tp0.memory.json has the greatest values. `perseus
tune` reads it (docs/client.md, "Memory"). Nothing is measured later.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, Optional

from perseus.adapters._devices import has_cuda
from perseus.adapters._rank_files import path_of, replace

# The steps that are measured, counted from the first one that is recorded.
FIRST_STEP = 2
STEPS = 2


def probe_of(options: Any, chunks: int, device: Any) -> Optional[Probe]:
    """Returns None if there is no GPU, or no job directory to write to.

    Args:
        options: Of perseus.open.
        chunks: The number of stages of this rank.
        device: The torch.device of the stages. None: the current CUDA device.
    """
    ranks = (options["dp_rank"], options["pp_rank"], options["tp_rank"])
    path = path_of(options.get("job_directory"), ranks, "memory.json")
    if path is None or not has_cuda():
        return None
    return Probe(path, chunks, sys.modules["torch"].cuda, device)


class Probe:
    """Counts bytes in a few steps, and writes them once. `is_done` then."""

    def __init__(self, path: pathlib.Path, chunks: int, cuda: Any, device: Any) -> None:
        self.is_done = False
        self._path = path
        self._cuda = cuda
        self._device = device
        self._step = -1
        self._before: Optional[int] = None
        self._model = 0
        self._activations: Dict[int, int] = dict.fromkeys(range(chunks), 0)

    @property
    def _measures(self) -> bool:
        return FIRST_STEP <= self._step < FIRST_STEP + STEPS

    def step_begin(self) -> None:
        self._step += 1
        self._before = None
        if self._measures:
            self._model = max(self._model, self._cuda.memory_allocated(self._device))

    def forward_begin(self) -> None:
        if self._measures:
            self._before = self._cuda.memory_allocated(self._device)

    def forward_end(self, chunk: int) -> None:
        if self._before is None:
            return
        kept = self._cuda.memory_allocated(self._device) - self._before
        self._before = None
        self._activations[chunk] = max(self._activations.get(chunk, 0), kept)

    def step_end(self) -> None:
        if self._step + 1 < FIRST_STEP + STEPS:
            return
        self.is_done = True
        measured = {
            "perseus_rank_memory": 1,
            "activation_bytes": [self._activations[chunk] for chunk in sorted(self._activations)],
            "model_bytes": self._model,
            "peak_bytes": self._cuda.max_memory_allocated(self._device),
        }
        replace(self._path, json.dumps(measured) + "\n")
