"""A session with a real agent on virtual GPUs requests the clocks of the plan and returns the GPU."""

import signal
import time
import unittest

import perseus
from support import PROFILE, Agent, ScratchTest


class AgentTest(ScratchTest):
    def setUp(self):
        super().setUp()
        self.agent = Agent(self)
        self.plan = self.scratch / "plan.json"
        found = perseus.plan(
            PROFILE, schedule="1f1b", microbatches=2, blocking_power_w=83.64, target="least-energy"
        )
        found.save(self.plan)
        table = found.plan.instructions
        self.planned = table[table["pp_rank"] == 0]

    def open(self, **options):
        session = perseus.open(
            agent=self.agent.socket, devices=self.agent.devices, gpu=0, **options
        )
        self.addCleanup(session.close)
        self.agent.wait_until(lambda: session.counters.may_set_clocks)
        return session

    def train(self, steps):
        for _ in range(steps):
            with perseus.step():
                for kind, microbatch in zip(self.planned["kind"], self.planned["microbatch"]):
                    with perseus.instruction(str(kind), microbatch=microbatch):
                        time.sleep(0.02)

    def test_follows_the_plan_and_returns_the_gpu(self):
        session = self.open(plan=self.plan)
        self.train(3)
        counters = session.counters
        self.assertEqual(counters.steps_off_plan, 0)
        self.assertTrue(counters.follows_plan)
        self.assertGreater(counters.clock_requests, 0)
        self.assertEqual(counters.clocks_refused, 0)
        (gpu,) = self.agent.gpus()
        self.assertNotEqual(gpu["lease"], "")
        session.close()
        self.agent.wait_until(lambda: self.agent.gpus()[0]["lease"] == "")

    def test_a_lost_agent_is_only_a_warning(self):
        session = self.open(plan=self.plan)
        self.train(1)
        with self.assertLogs("perseus") as logs:
            self.agent.process.send_signal(signal.SIGKILL)
            self.agent.process.wait()
            self.agent.wait_until(lambda: session.counters.agent_losses > 0)
            self.agent.wait_until(lambda: session.counters.warnings > 0)
            self.train(2)
        self.assertIn("agent", "\n".join(logs.output))
        self.assertEqual(session.counters.steps, 3)
        self.assertFalse(session.counters.may_set_clocks)


if __name__ == "__main__":
    unittest.main()
