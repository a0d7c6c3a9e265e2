"""Tests sessions and hooks, and that training continues after every error."""

import json
import logging
import os
import subprocess
import sys
import time
import unittest

import perseus
from support import PROFILE, ScratchTest

ALONE = dict(agent="off", devices="off")


def steps_of(directory, name="dp0-pp0-tp0"):
    """Returns the steps that a rank recorded."""
    with open(directory / "ranks" / f"{name}.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "step" in line]


class SessionTest(ScratchTest):
    def open(self, **options):
        session = perseus.open(**{**ALONE, "job_directory": self.scratch, **options})
        self.addCleanup(session.close)
        return session

    def recorded(self, session):
        """Returns kind, microbatch and chunk of the recorded instructions of each step."""
        session.close()
        return [[tuple(one[:3]) for one in step["instructions"]] for step in steps_of(self.scratch)]

    def record(self):
        (self.scratch / "assignment.json").write_text(
            '{"perseus_assignment": 1, "version": 1, "from_step": 0, "record": true}'
        )


class HooksTest(SessionTest):
    def test_records_instructions_in_their_order(self):
        self.record()
        session = self.open()
        with perseus.step():
            with perseus.instruction("forward", microbatch=3, chunk=1):
                pass
            with perseus.instruction("backward_input", 3):
                pass
            with session.instruction(kind="backward_weight", chunk=0, microbatch=3, stream=None):
                pass
        perseus.step_begin()
        perseus.instruction_begin("recompute", microbatch=0)
        perseus.instruction_end()
        perseus.instruction_begin("backward", microbatch=0)
        perseus.instruction_end()
        perseus.step_end()
        self.assertEqual(session.counters.steps, 2)
        self.assertEqual(session.counters.instructions, 5)
        self.assertEqual(
            self.recorded(session), [[(0, 3, 1), (2, 3, 0), (3, 3, 0)], [(4, 0, 0), (1, 0, 0)]]
        )

    def test_the_record_names_the_stages_of_the_chunks(self):
        session = self.open(pp_rank=3, stages=[3, 4], pp_ranks=4)
        session.close()
        with open(self.scratch / "ranks" / "dp0-pp3-tp0.jsonl") as file:
            header = json.loads(file.readline())
        self.assertEqual((header["stages"], header["pp_ranks"]), ([3, 4], 4))

    def test_a_missing_microbatch_is_counted(self):
        self.record()
        session = self.open()
        for _ in range(2):
            with perseus.step():
                for kind, chunk in [("forward", 0), ("forward", 1), ("forward", 0), ("backward", 0)]:
                    with perseus.instruction(kind, chunk=chunk):
                        pass
        one = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
        self.assertEqual(self.recorded(session), [one, one])

    def test_a_step_that_an_exception_leaves_is_abandoned(self):
        self.record()
        session = self.open()
        with self.assertRaises(KeyError):
            with perseus.step():
                with perseus.instruction("forward", microbatch=0):
                    raise KeyError
        with perseus.step():
            with perseus.instruction("backward", microbatch=0):
                pass
        perseus.step_begin()
        perseus.step_abandon()
        session.step_begin()
        session.step_abandon()
        counters = session.counters
        self.assertEqual((counters.steps, counters.instructions), (1, 2))
        self.assertEqual(counters.steps_abandoned, 3)
        self.assertEqual(counters.steps_off_plan, 0)
        self.assertEqual(counters.changes_skipped, 0)
        self.assertEqual(self.recorded(session), [[(1, 0, 0)]])
        self.assertEqual([step["step"] for step in steps_of(self.scratch)], [1])

    def test_a_step_that_is_open_at_close_is_abandoned(self):
        self.record()
        session = self.open()
        for _ in range(2):  # The first step ends when the second one begins.
            perseus.step_begin()
            with perseus.instruction("forward", microbatch=0):
                pass
        perseus.instruction_begin("backward", microbatch=0)
        session.close()
        counters = session.counters
        self.assertEqual(len(steps_of(self.scratch)), 1)
        self.assertEqual((counters.steps, counters.steps_abandoned), (1, 0))  # Before the close.

    def test_numbers_that_no_rank_has_are_a_warning(self):
        for name, number in [("pp_rank", -1), ("dp_rank", 10**9), ("tp_rank", -7)]:
            with self.assertLogs("perseus", logging.WARNING) as log:
                session = self.open(**{name: number})
                with session.step():
                    pass
                session.close()
            self.assertIn(f"{name} is {number}, but it is a number from 0 to 1000000", log.output[0])
        self.assertFalse((self.scratch / "ranks").exists())

    def test_without_a_job_directory_no_warning_is_about_one(self):
        session = self.open(job_directory=None)
        with self.assertNoLogs("perseus", logging.WARNING):
            with session.step():
                for _ in range(40_000):  # More than fit between two turns of the background thread.
                    session.instruction_begin("forward", microbatch=0)
                    session.instruction_end()
            for _ in range(3):
                time.sleep(0.1)
                with session.step():
                    pass
            session.close()

    def test_nothing_happens_without_a_session(self):
        with perseus.step():
            with perseus.instruction("forward", microbatch=0):
                pass
        perseus.instruction_begin("forward")
        perseus.instruction_end()

    def test_a_closed_session_does_nothing(self):
        session = self.open()
        with session.step():
            pass
        with session.step():
            with session.instruction("forward", microbatch=0):
                session.close()
        self.assertFalse(session.is_open)
        with session.step():
            pass
        session.close()
        self.assertEqual(session.counters.steps, 1)  # The value at close.

    def test_two_sessions(self):
        first, second = self.open(), self.open(pp_rank=1)
        with first.step(), second.step():
            with first.instruction("forward", microbatch=0):
                pass
            with perseus.instruction("forward", microbatch=0):  # In the session that was opened last.
                pass
        self.assertEqual((first.counters.instructions, second.counters.instructions), (1, 1))
        with perseus.open(**ALONE) as third:
            self.assertTrue(third.is_open)
        self.assertFalse(third.is_open)


class WrongArgumentsTest(SessionTest):
    def test_hooks_warn_and_never_raise(self):
        session = self.open()
        wrong = [
            lambda: perseus.instruction(),
            lambda: perseus.instruction("sideways", microbatch=0),
            lambda: perseus.instruction(None),
            lambda: perseus.instruction(3, 3),
            lambda: perseus.instruction("forward", microbatch=-1),
            lambda: perseus.instruction("forward", microbatch=1.5),
            lambda: perseus.instruction("forward", microbatch=10**30),
            lambda: perseus.instruction("forward", microbatch="named"),
            lambda: perseus.instruction("forward", microbatch=0, chunk=[]),
            lambda: perseus.instruction("forward", microbatch=0, stream="x"),
            lambda: perseus.instruction("forward", microbatch=0, color="red"),
            lambda: perseus.instruction("forward", 0, 0, None, 5),
            lambda: perseus.instruction("forw\udc80rd", 0),
        ]
        ran = 0
        with perseus.step():
            for make in wrong:
                with make():
                    ran += 1
            perseus.instruction_begin("sideways")
            perseus.instruction_end()
            session.instruction_begin(microbatch=object())
            session.instruction_end()
            with perseus.instruction("forward", microbatch=0):
                pass
        self.assertEqual(ran, len(wrong))
        self.assertEqual(session.counters.instructions, 1)

    def test_each_cause_is_logged_once(self):
        done = self.run_python(
            "import logging, perseus\n"
            "logging.basicConfig(format='%(name)s|%(message)s')\n"
            "perseus.open(agent='off', devices='off')\n"
            "for _ in range(3):\n"
            "    with perseus.step():\n"
            "        with perseus.instruction('sideways'): pass\n"
            "        with perseus.instruction('forward', microbatch=-2): pass\n"
        )
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2, done.stderr)
        self.assertIn("perseus|perseus: dp0-pp0-tp0: instruction: the kind is not one of", lines[0])
        self.assertIn("perseus|perseus: dp0-pp0-tp0: instruction: the microbatch is not a whole number", lines[1])

    def test_a_handler_that_raises_does_not_stop_training(self):
        done = self.run_python(
            "import logging, perseus\n"
            "class Broken(logging.Handler):\n"
            "    def handle(self, record): raise ValueError('broken handler')\n"
            "logging.getLogger('perseus').addHandler(Broken())\n"
            "with perseus.instruction('sideways'): print('continued')\n"
        )
        self.assertEqual(done.stdout, "continued\n")
        self.assertIn("broken handler", done.stderr)

    def test_a_handler_may_open_another_session(self):
        done = self.run_python(
            "import logging, perseus\n"
            "class Reopens(logging.Handler):\n"
            "    def handle(self, record): perseus.open(agent='off', devices='off')\n"
            "logging.getLogger('perseus').addHandler(Reopens())\n"
            "perseus.open(agent='off', devices='off')\n"
            "perseus.step_begin()\n"
            "perseus.instruction_begin('forward', 0, stream=1)\n"  # No driver: a warning,
            "perseus.instruction_end()\n"
            "perseus.step_end()\n"
            "perseus.step_begin()\n"  # which this call logs.
            "print('continued')\n",
            PERSEUS_CUDA_LIBRARY="/none",
            PYTHONMALLOC="debug",  # Overwrites freed memory.
        )
        self.assertEqual(done.stdout, "continued\n")

    def test_streams(self):
        class Stream:
            cuda_stream = 0

        session = self.open()
        with perseus.step():
            for microbatch, stream in enumerate([0, Stream()]):
                with perseus.instruction("forward", microbatch, stream=stream):
                    pass
        # Without a GPU, the library may not time these instructions. The step must still end.
        self.assertEqual(session.counters.steps, 1)


# The beginning of a program that computes on a fake GPU, with a fake of torch. Its current stream
# is the default stream, with the address 0 on every device.
FAKE_TORCH = """
import ctypes, os, sys, threading, time, types, logging
logging.basicConfig(format='%(message)s')
driver = ctypes.CDLL(os.environ['PERSEUS_CUDA_LIBRARY'])
now = 0
def set_device(number):
    global now
    now = number
    driver.fake_cuda_set_context(number)
class Device:
    def __init__(self, number): self.number = number
    def __enter__(self): self.before = now; set_device(self.number)
    def __exit__(self, *error): set_device(self.before)
class Stream:
    cuda_stream = 0
    def __init__(self, device): self.device_index = device
torch = sys.modules['torch'] = types.ModuleType('torch')
torch.version = types.SimpleNamespace(hip=None)
torch.cuda = types.SimpleNamespace(current_device=lambda: now, device=Device)
set_device(0)
import perseus
session = perseus.open(agent='off', devices='off', job_directory='.')
"""


class StreamTest(SessionTest):
    def run_with_torch(self, code):
        library = os.path.join(os.environ["PERSEUS_BUILD"], "fake_cuda", "libcuda-held.so.1")
        return self.run_python(FAKE_TORCH + code, PERSEUS_CUDA_LIBRARY=library)

    def test_the_device_of_a_stream_is_the_current_one_in_each_call(self):
        done = self.run_with_torch(
            "for _ in range(3):\n"
            "    with perseus.step():\n"
            "        with perseus.instruction('forward', 0, stream=Stream(2)): print('in', now)\n"
            "print([driver.fake_cuda_calls(i) for i in range(3)], now, session.counters.warnings)\n"
        )
        # A base, and the begin and the end of three instructions.
        self.assertEqual(done.stdout, "in 0\n" * 3 + "[0, 0, 7] 0 0\n", done.stderr)

    def test_the_current_device_is_not_changed_without_need(self):
        done = self.run_with_torch(
            "torch.cuda.device = None\n"
            "with perseus.step():\n"
            "    for stream in (Stream(0), 0):\n"
            "        with perseus.instruction('forward', stream=stream): pass\n"
            "print(driver.fake_cuda_calls(0))\n"
        )
        self.assertEqual((done.stdout, done.stderr), ("5\n", ""))

    def test_a_device_that_torch_refuses_is_a_warning(self):
        done = self.run_with_torch(
            "with perseus.step():\n"
            "    with perseus.instruction('forward', stream=Stream(2)): torch.cuda.device = None\n"
            "    with perseus.instruction('forward', stream=Stream(2)): pass\n"
            "print([driver.fake_cuda_calls(i) for i in range(3)], now, session.counters.steps)\n"
        )
        self.assertEqual(done.stdout, "[0, 0, 2] 0 1\n")
        self.assertEqual(done.stderr.count("cannot be made the current one"), 1, done.stderr)

    def test_an_interrupt_in_torch_passes_and_the_instruction_ends(self):
        done = self.run_with_torch(
            "def interrupt(): raise KeyboardInterrupt\n"
            "perseus.step_begin()\n"
            "perseus.instruction_begin('forward', stream=Stream(0))\n"
            "torch.cuda.current_device = interrupt\n"
            "try: perseus.instruction_end()\n"
            "except KeyboardInterrupt: print('interrupted')\n"
            "print(session.counters.instructions, driver.fake_cuda_calls(0))\n"
        )
        self.assertEqual(done.stdout, "interrupted\n1 3\n")

    def test_other_threads_run_while_a_call_waits_for_the_stream(self):
        done = self.run_with_torch(
            "def second():\n"  # Cannot run while the first thread holds the interpreter's lock.
            "    while not driver.fake_cuda_is_waiting(): time.sleep(0.001)\n"
            "    perseus.instruction_begin('backward', 0)\n"
            "    perseus.step_end()\n"
            "    print('other thread', session.counters.instructions, session.counters.steps)\n"
            "    driver.fake_cuda_hold(0)\n"
            "thread = threading.Thread(target=second)\n"
            "perseus.step_begin()\n"
            "driver.fake_cuda_hold(1)\n"
            "thread.start()\n"
            "perseus.instruction_begin('forward', 0, stream=0)\n"
            "thread.join()\n"
            "perseus.instruction_end()\n"
            "perseus.step_end()\n"
            "print(session.counters.instructions, session.counters.steps)\n"
        )
        self.assertEqual(done.stdout, "other thread 0 0\n1 1\n")
        self.assertEqual(done.stderr.count("two threads use one session"), 1, done.stderr)

    def test_a_session_may_close_while_a_call_waits_for_the_stream(self):
        done = self.run_with_torch(
            "def second():\n"
            "    while not driver.fake_cuda_is_waiting(): time.sleep(0.001)\n"
            "    session.close()\n"
            "    driver.fake_cuda_hold(0)\n"
            "thread = threading.Thread(target=second)\n"
            "perseus.step_begin()\n"
            "driver.fake_cuda_hold(1)\n"
            "thread.start()\n"
            "with perseus.instruction('forward', 0, stream=0): pass\n"
            "thread.join()\n"
            "print(session.is_open)\n"
        )
        self.assertEqual(done.stdout, "False\n")

    def test_instructions_without_a_stream_are_one_warning(self):
        done = self.run_with_torch(
            "for _ in range(4):\n"
            "    with perseus.step():\n"
            "        with perseus.instruction('forward'): pass\n"
            "    end = time.monotonic() + 20\n"
            "    while session.counters.warnings < 1 and time.monotonic() < end: time.sleep(0.01)\n"
            "print(session.counters.warnings)\n"
        )
        self.assertEqual(done.stdout, "1\n")
        self.assertEqual(done.stderr.count("instructions have no stream"), 1, done.stderr)

    def test_on_rocm_whole_steps_are_recorded(self):
        done = self.run_with_torch(
            "torch.version.hip = '6.4'\n"
            "for _ in range(3):\n"
            "    with perseus.step():\n"
            "        with perseus.instruction('forward', stream=Stream(0)): pass\n"
            "print(session.counters.warnings, [driver.fake_cuda_calls(i) for i in range(3)])\n"
        )
        self.assertEqual(done.stdout, "0 [0, 0, 0]\n")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("only whole steps are recorded", done.stderr)
        self.assertEqual([step["instructions"] for step in steps_of(self.scratch)], [[], [], []])


class FailOpenTest(SessionTest):
    def test_warnings_have_the_name_of_the_library(self):
        """Also without any logging in the program, where Python prints the message alone."""
        program = (
            "import logging, perseus, sys\n"
            "exec(sys.argv[1])\n"
            "perseus.open(agent='off', devices='off', plan='none.json')\n"
            "with perseus.step():\n"
            "    pass\n"
        )
        for setup, expected in (
            ("", "^perseus: dp0-pp0-tp0: .*none.json"),
            ("logging.basicConfig()", "^WARNING:perseus:perseus: dp0-pp0-tp0: .*none.json"),
            ("logging.basicConfig(format='%(message)s')", "^perseus: dp0-pp0-tp0: .*none.json"),
            ("logging.getLogger('perseus').addHandler(logging.NullHandler())", "^$"),
        ):
            run = subprocess.run(
                [sys.executable, "-c", program, setup],
                stderr=subprocess.PIPE,
                text=True,
                cwd=self.scratch,
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            lines = [line for line in run.stderr.splitlines() if "none.json" in line] or [""]
            self.assertEqual(len(lines), 1, run.stderr)
            self.assertRegex(lines[0], expected)

    def test_the_ranks_of_a_node_say_a_warning_once(self):
        rank = (
            "import os, perseus, sys, time\n"
            "rank = int(os.environ.get('LOCAL_RANK', 0))\n"
            "perseus.open(agent='off', devices='off', pp_rank=rank, plan='none.json')\n"
            "perseus.open(agent='off', devices='off', pp_rank=rank, plan=f'of-rank-{rank}.json')\n"
            "print('opened', flush=True)\n"
            "sys.stdin.read()\n"
        )

        def run(variables):
            """Runs two ranks at the same time. Returns their errors."""
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", rank],
                    env={**os.environ, **each},
                    cwd=self.scratch,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for each in variables
            ]
            for each in ranks:
                self.assertEqual(each.stdout.readline(), "opened\n")
            return "".join(each.communicate()[1] for each in ranks)

        launched = [{"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"}]
        for _ in range(2):  # A later run says it again.
            errors = run(launched)
            self.assertEqual(errors.count("none.json"), 1, errors)
            for number in range(2):  # What only one of them has to say.
                self.assertIn(f"of-rank-{number}.json", errors)
        # Without a launcher, two programs have nothing to do with each other.
        self.assertEqual(run([{}, {}]).count("none.json"), 2)

    def test_no_agent_and_no_plan_are_warnings(self):
        (self.scratch / "node.toml").write_text('gpus = 1\n[gpu]\nmodel = "a100-sxm"\n')
        with self.assertLogs("perseus", logging.WARNING) as logs:
            session = self.open(
                agent=self.scratch / "none.sock",
                devices=f"virtual:{self.scratch / 'node.toml'}",
                plan=self.scratch / "none.json",
                dp_rank=1,
                pp_rank=3,
            )
            # Warnings of the background thread are logged when a step begins.
            end = time.monotonic() + 20
            while session.counters.warnings < 2 and time.monotonic() < end:
                time.sleep(0.01)
            with perseus.step():
                pass
        text = "\n".join(logs.output)
        for message in logs.output:
            self.assertRegex(message, "^WARNING:perseus:perseus: dp1-pp3-tp0: ")
        self.assertIn("none.sock", text)
        self.assertIn("none.json", text)
        self.assertEqual(session.counters.may_set_clocks, False)
        self.assertEqual(session.counters.steps, 1)

    def test_a_mig_instance_is_a_warning(self):
        for devices in ("off", "virtual"):
            (self.scratch / "node.toml").write_text('gpus = 1\n[gpu]\nmodel = "a100-sxm"\n')
            if devices == "virtual":
                devices = f"virtual:{self.scratch / 'node.toml'}"
            with self.assertLogs("perseus", logging.WARNING) as logs:
                self.open(gpu="MIG-0123", devices=devices).close()
            self.assertEqual(len(logs.output), 1)
            self.assertIn("MIG instance, without a clock of its own", logs.output[0])

    def test_use_plan(self):
        plan = self.scratch / "plan.json"
        perseus.plan(PROFILE, schedule="1f1b", microbatches=2, blocking_power_w=80).save(plan)
        session = self.open(pp_rank=0)
        self.assertTrue(session.use_plan(str(plan)))
        with perseus.step():
            self.assertTrue(session.counters.follows_plan)
        self.assertTrue(session.use_plan(plan))  # A pathlib.Path.
        self.assertFalse(session.use_plan(self.scratch / "none.json"))
        self.assertTrue(session.use_plan(None))
        with perseus.step():
            self.assertFalse(session.counters.follows_plan)

    def test_open_refuses_unknown_options_and_wrong_types(self):
        with self.assertRaises(TypeError):
            perseus.open(rang=3)
        for name, value, kind, message in [
            ("pp_rank", "3", TypeError, "pp_rank: '3' is not a whole number \\(give one from 0\\)"),
            ("dp_rank", None, TypeError, "dp_rank: None is not a whole number"),
            ("tp_rank", 2**40, ValueError, "tp_rank: 1099511627776 is too large"),
            ("plan", 7, TypeError, "plan: 7 is not a path"),
            ("agent", "a\0b", ValueError, "agent: .* has a zero byte"),
            ("job_directory", "\ud800", ValueError, "job_directory: .* is not UTF-8"),
            ("job", 7, TypeError, "job: 7 is not a text"),
            ("devices", b"off", TypeError, "devices: b'off' is not a text"),
            ("stages", 7, TypeError, "stages: 7 is not a list of numbers"),
            ("plan_expires_at", float("nan"), ValueError, "plan_expires_at: nan is not a time"),
        ]:
            with self.subTest(name), self.assertRaisesRegex(kind, message):
                perseus.open(**{name: value})


class ProcessTest(SessionTest):
    def test_a_forked_child_does_nothing_and_exits(self):
        self.record()
        session = self.open()
        with perseus.step():
            with perseus.instruction("forward", microbatch=0):
                child = os.fork()
                if child == 0:
                    # In a real child, atexit would close the session at the end.
                    with perseus.step():
                        with perseus.instruction("forward", microbatch=1):
                            pass
                    session.close()
                    os._exit(17 if session.counters.steps == 0 else 1)
                _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 17)
        self.assertEqual(self.recorded(session), [[(0, 0, 0)]])

    def test_a_child_may_open_its_own_session(self):
        self.open()
        child = os.fork()
        if child == 0:
            own = perseus.open(pp_rank=1, **ALONE)
            with perseus.step():
                pass
            steps = own.counters.steps
            own.close()
            os._exit(17 if steps == 1 else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 17)

    def test_exit_in_the_middle_of_a_step_writes_the_record(self):
        self.record()
        code = (
            "import perseus, sys\n"
            "session = perseus.open(agent='off', devices='off', job_directory='.')\n"
            "for microbatch in (5, 6):\n"
            "    perseus.step_begin()\n"
            "    perseus.instruction_begin('forward', microbatch)\n"
            "    perseus.instruction_end()\n"
            "{}\n"
        )
        for name, end in [("at the end of the script", "pass"), ("exits", "sys.exit(0)")]:
            with self.subTest(name):
                self.run_python(code.format(end))
                (step,) = steps_of(self.scratch)
                self.assertEqual(step["instructions"][0][:2], [0, 5])  # Not the open step.

    def test_the_record_says_whether_training_ended_in_order(self):
        code = (
            "import perseus\n"
            "session = perseus.open(agent='off', devices='off', job_directory='.')\n"
            "with perseus.step():\n"
            "    pass\n"
            "{}\n"
        )
        for end, has_ended in [
            ("", True),
            ("session.close()", True),
            ("raise ValueError", False),
            ("with perseus.step(): raise KeyboardInterrupt", False),
            ("perseus.step_begin()", False),
            ("import os; os.kill(os.getpid(), 15)", False),
        ]:
            with self.subTest(end):
                subprocess.run(
                    [sys.executable, "-c", code.format(end)],
                    stderr=subprocess.DEVNULL,
                    cwd=self.scratch,
                )
                log = (self.scratch / "ranks" / "dp0-pp0-tp0.jsonl").read_text()
                self.assertEqual(log.endswith('{"remark":"the training has ended"}\n'), has_ended)

    def test_exit_of_a_forked_child_runs_atexit(self):
        done = self.run_python(
            "import os, sys, perseus\n"
            "session = perseus.open(agent='off', devices='off')\n"
            "child = os.fork()\n"
            "if child == 0: sys.exit(17)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), session.is_open)\n"
        )
        self.assertEqual(done.stdout, "17 True\n")

    def test_a_session_may_close_while_another_thread_reads_a_plan(self):
        plan = self.scratch / "plan.json"
        perseus.plan(PROFILE, schedule="1f1b", microbatches=2, blocking_power_w=80).save(plan)
        plan.write_text(plan.read_text() + " " * 50_000_000)  # Reading it takes a while.
        code = (
            "import atexit, sys, threading\n"
            "sys.setswitchinterval(1000)\n"  # Python changes threads only where a call waits.
            "begins, ends = threading.Event(), threading.Event()\n"
            "atexit.register(ends.wait)\n"  # Runs after the session has closed.
            "import perseus\n"
            "session = perseus.open(agent='off', devices='off')\n"
            "class Path:\n"
            "    def __fspath__(self):\n"
            "        begins.set()\n"
            "        return 'plan.json'\n"
            "def control():\n"
            "    session.use_plan(Path())\n"
            "    ends.set()\n"
            "threading.Thread(target=control, daemon=True).start()\n"
            "begins.wait()\n"
            "{}\n"
        )
        for name, end in [("closes", "session.close()"), ("at the end of the script", "pass")]:
            with self.subTest(name):
                self.run_python(code.format(end), MALLOC_PERTURB_="85")  # Overwrites freed memory.

    def test_training_needs_no_numpy(self):
        self.run_python(
            "import sys\n"
            "sys.modules['numpy'] = None\n"
            "import perseus\n"
            "with perseus.open(agent='off', devices='off'), perseus.step(): pass\n"
        )


if __name__ == "__main__":
    unittest.main()
