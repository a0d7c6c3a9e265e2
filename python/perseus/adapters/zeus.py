"""A class with the signature of Zeus' pipeline frequency optimizer, over a session of Perseus.

Code that has the hooks of Zeus in place changes one import:

    from perseus.adapters.zeus import PipelineFrequencyOptimizer

What is different: nothing waits for the GPU, nothing raises, no collective runs, and no server is
asked. The plan comes from the job directory or from PERSEUS_PLAN, as for any session. Microbatches
are counted for each kind of instruction.
"""

from __future__ import annotations

from typing import Any, Optional

from perseus import _client
from perseus.adapters._devices import gpu_by_number, stream_by_number
from perseus.adapters._recorder import _plain
from perseus.adapters._warning import warn


class PipelineFrequencyOptimizer:
    """Marks steps and instructions. All calls fail open."""

    def __init__(
        self,
        rank: int,
        dp_rank: int,
        pp_rank: int,
        tp_rank: int,
        device_id: int,
        dp_degree: int,
        pp_degree: int,
        tp_degree: int,
        world_size: int,
        server_url: str,
        job_metadata: Optional[str] = None,
    ) -> None:
        """The session opens at the first step, and waits at most 20 s for the agent of the node.

        Before the first step, the program may still choose which GPUs it sees, and torch may not have
        numbered them.

        Args:
            rank, dp_degree, tp_degree, world_size, server_url: Not used.
            dp_rank, pp_rank, tp_rank: Which part of the job this process is.
            device_id: The number of the GPU, as torch counts.
            pp_degree: The number of pipeline ranks.
            job_metadata: The name of the job, which other users see as the holder of the GPU.
        """
        self.session: Optional[_client.Session] = None  # None before the first step.
        self._device_id = device_id
        self._has_tried = False  # To open the session.
        self._options = {
            "dp_rank": dp_rank,
            "pp_rank": pp_rank,
            "tp_rank": tp_rank,
            "job": job_metadata,
            "stages": (pp_rank,),
            "pp_ranks": pp_degree,
        }

    def _open(self) -> None:
        self._has_tried = True
        try:
            gpu = gpu_by_number(self._device_id)
            self.session = _client.Session(**_plain({**self._options, "gpu": gpu}))
        except Exception as error:
            warn(
                "PipelineFrequencyOptimizer: no session (%s: %s); training runs without Perseus",
                type(error).__name__,
                error,
            )

    def on_step_begin(self) -> None:
        if not self._has_tried:
            self._open()
        if self.session is not None:
            self.session.step_begin()

    def on_step_end(self) -> None:
        if self.session is not None:
            self.session.step_end()

    def on_instruction_begin(self, name: str) -> None:
        """`name` is "forward", "backward", or another kind of perseus.instruction."""
        if self.session is None:
            return
        try:
            stream = stream_by_number(self._device_id)
        except Exception:
            stream = None
        self.session.instruction_begin(name, stream=stream)

    def on_instruction_end(self, name: str) -> None:
        if self.session is not None:
            self.session.instruction_end()

    # The other calls of a Zeus callback.

    def on_train_begin(self) -> None:
        pass

    def on_train_end(self) -> None:
        pass

    def on_epoch_begin(self) -> None:
        pass

    def on_epoch_end(self) -> None:
        pass

    def on_evaluate(self, metric: float) -> None:
        pass
