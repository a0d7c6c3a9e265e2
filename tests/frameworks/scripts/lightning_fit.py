"""Lightning's Trainer with the Transformer of its own demos."""

import sys

import lightning
import torch
from lightning.pytorch.demos.transformer import Transformer
from tiny_data import VOCABULARY, WIDTH, Codes
from torch.nn import functional


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Transformer(VOCABULARY, ninp=WIDTH, nhead=4, nhid=WIDTH, nlayers=2)

    def training_step(self, batch, batch_index):
        codes, targets = batch
        loss = functional.nll_loss(self.model(codes, targets), targets.flatten())
        if self.trainer.is_global_zero:
            print("loss", loss.item().hex(), flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    steps, ranks = int(sys.argv[1]), int(sys.argv[2])
    lightning.seed_everything(0)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Codes(4 * steps * ranks), batch_size=2)
    lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), loader)


if __name__ == "__main__":
    main()
