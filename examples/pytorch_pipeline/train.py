#!/usr/bin/env python3
"""Trains a small GPT over four pipeline stages, with Perseus around forward and backward.

Apart from the import, Perseus needs four lines; README.md explains them. Everything else is ordinary
PyTorch: one process for each stage, gloo between them, and the 1F1B schedule.
"""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import perseus
from measure import Stopwatch, report
from model import CONTEXT, WIDTH, Stage, Text

STAGES = 4


def order_1f1b(rank, microbatches):
    """The instructions of a rank in order: warm-up forwards, then pairs of one forward and one backward,
    then the remaining backwards."""
    warm_up = min(STAGES - rank - 1, microbatches)
    order = [("forward", i) for i in range(warm_up)]
    for i in range(microbatches - warm_up):
        order += [("forward", warm_up + i), ("backward", i)]
    return order + [("backward", i) for i in range(microbatches - warm_up, microbatches)]


class Pipeline:
    """One rank: it receives, computes and sends tensors."""

    def __init__(self, rank, flags):
        self.rank, self.flags = rank, flags
        self.stage = Stage(rank, STAGES)
        self.text = Text(flags.text, flags.batch)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=1e-3)
        self.sent = []  # Tensors in flight, kept until they have arrived.

    def receive(self, source):
        tensor = torch.empty(self.flags.batch, CONTEXT, WIDTH)
        dist.recv(tensor, source)
        return tensor

    def send(self, tensor, target):
        tensor = tensor.detach().contiguous()
        self.sent.append((dist.isend(tensor, target), tensor))

    def forward(self, step, microbatch):
        inputs, targets = self.text.microbatch(step, microbatch, self.flags.microbatches)
        if not self.stage.is_first:
            inputs = self.receive(self.rank - 1).requires_grad_()
        with perseus.instruction("forward", microbatch=microbatch):
            output = self.stage(inputs, targets)
        if not self.stage.is_last:
            self.send(output, self.rank + 1)
        return inputs, output

    def backward(self, microbatch, inputs, output):
        gradient = None
        if self.stage.is_last:
            output = output / self.flags.microbatches
        else:
            gradient = self.receive(self.rank + 1)
        with perseus.instruction("backward", microbatch=microbatch):
            output.backward(gradient)
        if not self.stage.is_first:
            self.send(inputs.grad, self.rank - 1)

    def step(self, step):
        """Runs one iteration. Returns its loss on the last rank, None on the others."""
        losses, waiting = [], {}
        with perseus.step():
            for kind, microbatch in order_1f1b(self.rank, self.flags.microbatches):
                if kind == "forward":
                    waiting[microbatch] = self.forward(step, microbatch)
                    losses.append(waiting[microbatch][1].detach())
                else:
                    self.backward(microbatch, *waiting.pop(microbatch))
            for work, _ in self.sent:
                work.wait()
            self.sent.clear()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return torch.stack(losses).mean().item() if self.stage.is_last else None


def train(rank, flags):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group(
        "gloo", init_method=f"file://{flags.rendezvous}", rank=rank, world_size=STAGES
    )
    session = None
    if not flags.without_perseus:
        session = perseus.open(pp_rank=rank, gpu=str(rank), plan=flags.plan)
    pipeline = Pipeline(rank, flags)
    watch = Stopwatch() if flags.measure else None
    losses = []
    for step in range(flags.steps):
        began = time.perf_counter()
        loss = pipeline.step(step)
        if watch:
            watch.add_step(time.perf_counter() - began)
        if loss is not None:
            losses.append(loss)
            if step % 10 == 0 or step == flags.steps - 1:
                print(f"step {step}: loss {loss:.4f}", flush=True)
    if flags.losses and losses:
        # Hexadecimal floats keep all bits, so a test can compare two runs bit for bit.
        flags.losses.write_text("".join(f"{loss.hex()}\n" for loss in losses))
    if watch:
        report(rank, watch, session)
    if session:
        session.close()


def main():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="sequences in a microbatch")
    parser.add_argument("--text", type=pathlib.Path, default=here / "README.md")
    parser.add_argument("--plan", type=pathlib.Path, help="a plan to follow (perseus plan)")
    parser.add_argument("--without-perseus", action="store_true", help="do not open a session")
    parser.add_argument("--measure", action="store_true", help="print the time of the hooks")
    parser.add_argument("--losses", type=pathlib.Path, help="write every loss with all its digits")
    flags = parser.parse_args()
    flags.rendezvous = pathlib.Path(f"/tmp/perseus-example-{time.time_ns()}")
    try:
        multiprocessing.spawn(train, (flags,), STAGES)
    finally:
        flags.rendezvous.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
