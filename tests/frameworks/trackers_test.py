"""The callbacks of perseus.trackers with the client libraries of the trackers, offline."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from works import works

PROGRAM = os.environ.get("PERSEUS_PROGRAM", "perseus")
HERE = pathlib.Path(__file__).parent
NODE = 'name = "box"\ngpus = 1\nclock = "job.clock"\n[gpu]\nprofile = "truth.csv"\n'
# A training on a virtual GPU. It calls report(step), and then log() as a program with own numbers.
TRAINING = f"""
import sys
sys.path[:0] = ["{HERE}", "{HERE}/scripts"]
import torch
import on_virtual_gpu, perseus
from perseus import trackers
from tiny_data import Codes, TinyGPT

on_virtual_gpu.occupy_with_embeddings("truth.csv")
STEPS = 20

def train(report, log=lambda: None):
    model = TinyGPT()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = perseus.attach(model)
    codes, targets = (torch.stack(some) for some in zip(*Codes(4)))
    for step in range(STEPS):
        model(codes, targets)[1].backward()
        optimizer.step()
        optimizer.zero_grad()
        perseus.progress(samples=4, tokens=64)
        report(step)
        log()
    handle.detach()
"""


class TrackersTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)
        (self.scratch / "node.toml").write_text(NODE)
        self.run_command(PROGRAM, "synth", "--gpu=a100", "--stages=1", "-o", "truth.csv")

    def run_command(self, *command, **environment):
        done = subprocess.run(
            command,
            cwd=self.scratch,
            env={**os.environ, "PERSEUS_DEVICES": f"virtual:{self.scratch / 'node.toml'}",
                 "PERSEUS_AGENT": "off", "HOME": str(self.scratch), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, code, **environment):
        return self.run_command(sys.executable, "-c", TRAINING + code, **environment)

    @works("wandb", "callback")
    def test_wandb_keeps_the_steps_of_the_program(self):
        output = self.train(
            "import wandb\n"
            "run = wandb.init(project='p', dir='.')\n"
            "train(trackers.to_wandb(every_s=0), lambda: run.log({'loss': 1.0}))\n"
            "print('steps', run.step, run.summary['perseus/energy_per_token_j'] > 0)\n"
            "run.finish()\n",
            WANDB_MODE="offline",
        )
        self.assertIn("steps 20 True", output)
        self.assertTrue(list(self.scratch.glob("wandb/offline-run-*/*.wandb")))

    @works("tensorboard", "callback")
    def test_tensorboard(self):
        output = self.train(
            "from torch.utils.tensorboard import SummaryWriter\n"
            "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
            "with SummaryWriter('events') as writer:\n"
            "    train(trackers.to_tensorboard(writer, every_s=0))\n"
            "events = EventAccumulator('events').Reload()\n"
            "last = events.Scalars('perseus/energy_per_step_j')[-1]\n"
            "print('step', last.step, last.value > 0, 'perseus/saving_percent' in events.Tags()['scalars'])\n"
        )
        self.assertIn("step 19 True False", output)

    @works("mlflow-skinny", "callback")
    def test_mlflow(self):
        output = self.train(
            "import mlflow\n"
            "with mlflow.start_run() as run:\n"
            "    train(trackers.to_mlflow(every_s=0))\n"
            "mlflow.flush_async_logging()\n"
            "history = mlflow.MlflowClient().get_metric_history(run.info.run_id, 'perseus/power_w')\n"
            "print('step', max(one.step for one in history), history[-1].value > 0)\n",
            MLFLOW_TRACKING_URI=f"file://{self.scratch / 'mlruns'}",
            MLFLOW_ALLOW_FILE_STORE="true",
        )
        self.assertIn("step 19 True", output)

    @works("transformers", "callback")
    def test_trainer(self):
        output = self.train(
            "import transformers\n"
            "report = trackers.Report(lambda found, step: print('step', step, found.power_w is not None), 0)\n"
            "class Model(TinyGPT):\n"
            "    def forward(self, codes, labels):\n"
            "        logits, loss = super().forward(codes, labels)\n"
            "        return {'loss': loss, 'logits': logits}\n"
            "data = [{'codes': codes, 'labels': targets} for codes, targets in Codes(4)]\n"
            "flags = transformers.TrainingArguments('out', use_cpu=True, max_steps=STEPS, report_to=[],\n"
            "                                       save_strategy='no', disable_tqdm=True)\n"
            "model = Model()\n"
            "perseus.attach(model)\n"
            "callbacks = [trackers.for_trainer(report)]\n"
            "transformers.Trainer(model, flags, train_dataset=data, callbacks=callbacks).train()\n"
        )
        self.assertIn("step 20 True", output)

    @works("lightning", "callback")
    def test_lightning(self):
        self.train(
            "import lightning\n"
            "from lightning.pytorch.loggers import CSVLogger\n"
            "from lightning_fit import Module\n"
            "from unittest import mock\n"
            "module = Module()\n"
            "perseus.attach(module.model)\n"
            "with mock.patch.object(trackers, 'EVERY_S', 0):\n"
            "    callback = trackers.for_lightning()\n"
            "    lightning.Trainer(accelerator='cpu', max_steps=STEPS, max_epochs=-1, callbacks=[callback],\n"
            "                      logger=CSVLogger('logs'), log_every_n_steps=1, enable_checkpointing=False,\n"
            "                      enable_progress_bar=False, enable_model_summary=False,\n"
            "    ).fit(module, torch.utils.data.DataLoader(Codes(4), batch_size=2))\n"
        )
        (metrics,) = self.scratch.glob("logs/**/metrics.csv")
        self.assertIn("perseus/energy_per_step_j", metrics.read_text())

    def test_the_example_of_the_document_runs(self):
        document = pathlib.Path(os.environ["PERSEUS_SOURCES"]) / "docs" / "any-training.md"
        (block,) = re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(self.run_command(sys.executable, "-c", block), "nothing is measured yet\n")


if __name__ == "__main__":
    unittest.main()
