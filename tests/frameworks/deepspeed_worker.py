"""One rank of deepspeed_test.py: trains examples/deepspeed with and without Perseus.

Writes RESULTS/RANK.json: for each schedule, the order of DeepSpeed's own schedule object and the order
in which autograd really ran, what Perseus counted, and hashes of the losses and parameters.
"""

import functools
import hashlib

import on_cpu

on_cpu.without_compiler()

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.pipe import LayerSpec  # noqa: E402
from deepspeed.runtime.pipe import schedule as schedules  # noqa: E402

from comparison import observe, observe_ramp, run_worker  # noqa: E402
from observed import hooks_of, load_example  # noqa: E402

STEPS, BATCH, MICROBATCHES = 4, 2, 8
KINDS = {"ForwardPass": "forward", "BackwardPass": "backward"}

train = load_example("deepspeed")

seen = []  # What autograd ran in this process in the current step.


class Mark(torch.autograd.Function):
    """The identity, which writes down when it runs forward and backward."""

    @staticmethod
    def forward(context, x):
        seen.append("forward")
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        seen.append("backward")
        return gradient


def marked(layer):
    class Marked(layer):
        def forward(self, x):
            return Mark.apply(super().forward(x))

    return Marked


# Each stage has as many layers as the others, so that the marks of an instruction have a fixed number.
for name in ("Embedding", "Block", "Head"):
    setattr(train, name, marked(getattr(train, name)))


def claimed_order(name, engine):
    """(kind, microbatch, stage), from the schedule object of DeepSpeed."""
    order, in_buffer, forwards = [], {}, {}
    rank, ranks = engine.stage_id, engine.num_stages
    if name == "1F1B":
        schedule = schedules.TrainSchedule(engine.micro_batches, ranks, rank)
    else:
        schedule = schedules.DualPipeVSchedule(engine.micro_batches, ranks, rank)
    for commands in schedule:
        for command in commands:
            kind = KINDS.get(command.name)
            if kind is None:
                continue
            phase = getattr(command, "phase", 0)
            if kind == "forward":
                in_buffer[command.buffer_id] = forwards.get(phase, 0)
                forwards[phase] = in_buffer[command.buffer_id] + 1
            stage = rank if phase == 0 else 2 * ranks - 1 - rank
            order.append((kind, in_buffer[command.buffer_id], stage))
    assert name != "1F1B" or order == microbatches_by_time(engine)
    return order


def microbatches_by_time(engine):
    """The same for 1F1B, from the function that DeepSpeed maps times to microbatches with."""
    schedule = schedules.TrainSchedule(engine.micro_batches, engine.num_stages, engine.stage_id)
    found = []
    for time in range(2 * (schedule.micro_batches + schedule.stages - 1)):
        microbatch, is_forward = schedule._step_to_micro_batch(time)
        if 0 <= microbatch < schedule.micro_batches:
            found.append(("forward" if is_forward else "backward", microbatch, engine.stage_id))
    return found


def make_engine(name, microbatches=MICROBATCHES):
    if name == "1F1B":
        return train.engine(dist.get_world_size(), microbatches, BATCH)
    from deepspeed.pipe import DualPipeVModule

    torch.manual_seed(0)
    blocks = [LayerSpec(train.Block) for _ in range(2 * dist.get_world_size() - 2)]
    layers = [LayerSpec(train.Embedding), *blocks, LayerSpec(train.Head)]
    model = DualPipeVModule(
        layers, num_stages=dist.get_world_size(), loss_fn=train.loss, partition_method="uniform"
    )
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": microbatches,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": None,
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train_engine(engine, handle=None, ramp=False):
    """Trains, with an evaluation between steps. Returns a hash, and the kinds of the last step."""
    batches = train.text(BATCH)
    digest = hashlib.sha256()
    for step in range(STEPS):
        if step == 2:
            engine.eval_batch(train.text(BATCH))
            if handle is not None:
                handle.detach()
            if ramp:  # Twice as many microbatches.
                engine.set_train_batch_size(2 * engine.train_batch_size())
        seen.clear()
        digest.update(engine.train_batch(batches).detach().numpy().tobytes())
    for parameter in engine.module.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest(), list(seen)


def observe_all(results):
    found = {}
    for name in ("1F1B", "DualPipeV") if hasattr(schedules, "DualPipeVSchedule") else ("1F1B",):
        make, claimed = functools.partial(make_engine, name), functools.partial(claimed_order, name)
        found[name] = observe(results, name, make, train_engine, hooks_of, claimed)
    found["ramp"] = observe_ramp(results, make_engine("1F1B", 4), train_engine)
    return found


if __name__ == "__main__":
    run_worker(observe_all, lambda: deepspeed.init_distributed(dist_backend="gloo"))
