"""The loop of DDP tutorials: a trainer class, a distributed sampler, epochs, snapshots."""

import os
import sys

import torch
import torch.distributed as dist
from tiny_data import Codes, TinyGPT
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, model, loader, optimizer, path):
        self.rank, self.path, self.loader, self.optimizer = dist.get_rank(), path, loader, optimizer
        self.first_epoch = 0
        if os.path.exists(path):
            snapshot = torch.load(path)
            model.load_state_dict(snapshot["model"])
            self.first_epoch = snapshot["epoch"] + 1
        self.model = DistributedDataParallel(model)

    def batch(self, codes, targets):
        self.optimizer.zero_grad()
        _, loss = self.model(codes, targets)
        loss.backward()
        self.optimizer.step()
        if self.rank == 0:
            print("loss", loss.item().hex(), flush=True)

    def save(self, epoch):
        torch.save({"model": self.model.module.state_dict(), "epoch": epoch}, self.path)

    def train(self, epochs):
        for epoch in range(self.first_epoch, epochs):
            self.loader.sampler.set_epoch(epoch)
            for codes, targets in self.loader:
                self.batch(codes, targets)
            if self.rank == 0:
                self.save(epoch)


def main():
    steps, ranks = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyGPT()
    data = Codes(4 * ranks * max(1, steps // 4))
    loader = DataLoader(data, batch_size=4, shuffle=False, sampler=DistributedSampler(data))
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-2), "snapshot.pt").train(4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
