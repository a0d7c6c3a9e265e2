"""A loop with DDP that says what its steps cost. Of these scripts, only this one knows Perseus."""

import sys

import torch
import torch.distributed as dist
from tiny_data import Codes, TinyGPT
from torch.nn.parallel import DistributedDataParallel

import perseus


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(TinyGPT())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    codes, targets = (torch.stack(some) for some in zip(*Codes(4)))
    for step in range(int(sys.argv[1])):
        model(codes, targets)[1].backward()
        optimizer.step()
        optimizer.zero_grad()
        perseus.progress(samples=len(codes), tokens=codes.numel())
        if dist.get_rank() == 0 and step % 10 == 0:
            status = perseus.status()
            print(step, status, status.numbers(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
