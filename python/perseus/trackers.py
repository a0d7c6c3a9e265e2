"""Sends the numbers of perseus.status() to where engineers look.

    report = perseus.trackers.to_wandb()                # or to_mlflow(), to_log()
    report = perseus.trackers.to_tensorboard(writer)
    for step, batch in enumerate(batches):
        ...
        report(step)

    Trainer(..., callbacks=[perseus.trackers.for_trainer(report)])      # Hugging Face
    Trainer(..., callbacks=[perseus.trackers.for_lightning(report)])    # Lightning

A report sends at most every `every_s` seconds. It is never in the way: the first failure is one
warning, and the report sends nothing after that.

The names are those of perseus.Status, with the unit at the end: perseus/energy_per_step_j,
perseus/power_w, perseus/saving_percent. Unknown numbers are left out.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any, Callable, Dict, Optional

from perseus._log import log as _log
from perseus._status import Status, status

__all__ = ["Report", "for_lightning", "for_trainer", "to_log", "to_mlflow", "to_tensorboard", "to_wandb"]

EVERY_S = 30.0


class Report:
    """Sends the status from time to time. Thread safety: one thread at a time."""

    def __init__(self, send: Callable[[Status, int], object], every_s: float = EVERY_S) -> None:
        """`send` gets the status and the step of the program."""
        self._send = send
        self._every_s = every_s
        self._next: Optional[float] = 0.0  # None: it has failed.

    def __call__(self, step: Optional[int] = None) -> None:
        """Call it once a step. `step` None: the steps that Perseus recorded."""
        now = time.monotonic()
        if self._next is None or now < self._next:
            return
        self._next = now + self._every_s
        try:
            found = status()
            if found.step_time_s is not None:
                self._send(found, found.steps if step is None else step)
        except Exception:
            self._next = None
            _log.warning("trackers: the numbers cannot be sent; no more are sent", exc_info=True)


def to_log(every_s: float = EVERY_S) -> Report:
    """One line of the logger "perseus", at the level INFO."""
    return Report(lambda found, step: _log.info("step %d: %s", step, found), every_s)


def to_wandb(run: Any = None, every_s: float = EVERY_S) -> Report:
    """Weights & Biases. The numbers go with what the program logs next, so its steps stay as they are.

    `run` None: the active run, wandb.run.
    """
    wandb = importlib.import_module("wandb")

    def send(found: Status, _: int) -> None:
        (wandb.run if run is None else run).log(found.numbers(), commit=False)

    return Report(send, every_s)


def to_tensorboard(writer: Any, every_s: float = EVERY_S) -> Report:
    """TensorBoard: `writer` is a torch.utils.tensorboard.SummaryWriter."""

    def send(found: Status, step: int) -> None:
        for name, number in found.numbers().items():
            writer.add_scalar(name, number, step)

    return Report(send, every_s)


def to_mlflow(run_id: Optional[str] = None, every_s: float = EVERY_S) -> Report:
    """MLflow. A thread of MLflow sends the numbers. `run_id` None: the active run."""
    mlflow = importlib.import_module("mlflow")

    def send(found: Status, step: int) -> None:
        mlflow.log_metrics(found.numbers(), step=step, run_id=run_id, synchronous=False)

    return Report(send, every_s)


def for_trainer(report: Report) -> Any:
    """A callback of Hugging Face's Trainer, which reports on the first rank."""
    base: Any = importlib.import_module("transformers").TrainerCallback

    def on_step_end(self: Any, arguments: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            report(state.global_step)

    return type("PerseusCallback", (base,), {"on_step_end": on_step_end})()


def for_lightning(report: Optional[Report] = None) -> Any:
    """A callback of Lightning, which reports on the first rank. None: to all loggers of the trainer."""
    name = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
    base: Any = importlib.import_module(name).Callback
    own: Dict[str, Report] = {}

    def on_train_batch_end(self: Any, trainer: Any, *_: Any, **__: Any) -> None:
        if not trainer.is_global_zero:
            return
        if report is None and not own:
            own["report"] = Report(lambda found, step: _send_to_loggers(trainer, found, step), EVERY_S)
        (report or own["report"])(trainer.global_step)

    return type("PerseusCallback", (base,), {"on_train_batch_end": on_train_batch_end})()


def _send_to_loggers(trainer: Any, found: Status, step: int) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(found.numbers(), step)
