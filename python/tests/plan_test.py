"""Tests that the planner gives the plans of the program, with profiles from files and from memory."""

import csv
import json
import os
import signal
import threading
import unittest
import warnings

import numpy as np

import perseus
from support import PROFILE, ScratchTest

JOB = dict(schedule="1f1b", microbatches=6, blocking_power_w=83.64, gpus_per_stage=8)
FLAGS = ["--schedule=1f1b", "--microbatches=6", "--blocking-power=83.64", "--gpus-per-stage=8"]

SMALL = [
    # One stage, so the plan is clear by hand: nothing waits, and with no slowdown everything runs
    # at maximum frequency.
    (0, "forward", 1410, 0.010, 4.0),
    (0, "forward", 1200, 0.012, 3.0),
    (0, "backward", 1410, 0.020, 8.0),
    (0, "backward", 1200, 0.024, 6.0),
]
SMALL_JOB = dict(schedule="1f1b", microbatches=2, blocking_power_w=0)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class ProgramTest(ScratchTest):
    def test_plans_and_frontier(self):
        self.run_program(
            "plan", PROFILE, *FLAGS, "--slowdown=5", "--deadline=2", "--edp", "-oout"
        )
        found = perseus.plan(
            PROFILE, **JOB, target=["no-slowdown", "least-energy-delay"],
            slowdown_percent=5, deadline_s=2,
        )
        for name in ["no-slowdown", "slowdown-5", "deadline-2s", "least-energy-delay"]:
            with self.subTest(name):
                theirs = (self.scratch / "out" / "plans" / f"{name}.json").read_text()
                self.assertEqual(found.plans[name].to_json(), theirs)
        frontier = rows(self.scratch / "out" / "frontier.csv")
        columns = list(frontier[0])
        self.assertEqual(len(frontier), len(found.frontier.times_s))
        # Written with nine decimals and more: the same doubles.
        np.testing.assert_array_equal([float(r[columns[0]]) for r in frontier], found.frontier.times_s)
        np.testing.assert_array_equal(
            [float(r[columns[1]]) for r in frontier], found.frontier.energies_j
        )

    def test_limits_of_clock_changes_and_noise(self):
        self.run_program("synth", "--gpu=a100", "--stages=2", "-oprofile.csv")
        job = dict(schedule="1f1b", microbatches=3, blocking_power_w=84)
        for flags, arguments in [
            (["--per-instruction"], dict(per_instruction=True)),
            (["--max-switches=3", "--switch-tradeoff"], dict(max_switches=3, switch_tradeoff=True)),
            (["--max-switches=auto"], dict(max_switches="auto")),
            (["--noise=1", "--common-noise=0.5"], dict(noise_percent=(1, 0.5))),
            (["--effort=0"], dict(effort=0)),
        ]:
            with self.subTest(arguments):
                summary = json.loads(
                    self.run_program("plan", "profile.csv", "--schedule=1f1b", "--microbatches=3",
                                     "--blocking-power=84", *flags, "--json")
                )
                theirs = summary["plans"][0]
                found = perseus.plan(self.scratch / "profile.csv", **job, **arguments)
                self.assertEqual(found.plan.energy_j, theirs["energy_j"])
                self.assertEqual(found.plan.lower_bound_j, theirs["lower_bound_j"])
                self.assertEqual(found.plan.max_switches, theirs.get("max_switches"))
                rows = [row["max_switches"] for row in found.switch_tradeoff or []]
                self.assertEqual(rows, [row["max_switches"] for row in summary.get("switch_tradeoff", [])])

    def test_a_limit_that_no_plan_keeps_has_no_bound(self):
        self.run_program("synth", "--gpu=a100", "--stages=2", "-oprofile.csv")
        # Forwards and backwards share no clock, so no plan has 0 clock changes.
        header, *rows = (self.scratch / "profile.csv").read_text().splitlines()
        kept = [row for row in rows if (int(row.split(",")[2]) // 15 % 2 == 0) == ("forward" in row)]
        (self.scratch / "profile.csv").write_text("\n".join([header, *kept]) + "\n")
        found = perseus.plan(self.scratch / "profile.csv", schedule="1f1b", microbatches=3,
                             blocking_power_w=84, switch_latency_ms=0, switch_cost=(0, 0),
                             switch_tradeoff=True)
        self.assertEqual(found.switch_tradeoff[0], {"max_switches": 0, "saving": None, "lower_bound_j": None})

    def test_save_is_a_plan_that_the_program_evaluates(self):
        found = perseus.plan(PROFILE, **JOB)
        found.save(self.scratch / "plan.json")
        evaluation = json.loads(self.run_program("evaluate", "plan.json", "--json"))
        self.assertIn(repr(found.plan.time_s), json.dumps(evaluation))

    def test_errors_have_their_parts_as_attributes(self):
        bad = self.scratch / "bad.csv"
        bad.write_text("stage,instruction,frequency,time,energy\n0,forward,14l0,0.1,2\n")
        with self.assertRaises(perseus.Error) as raised:
            perseus.plan(bad, **JOB)
        self.assertEqual((raised.exception.file, raised.exception.line), (str(bad), 2))
        self.assertIn("MHz", raised.exception.remedy)
        self.assertIsNone(raised.exception.setting)
        with self.assertRaises(OSError) as raised:
            perseus.plan("none.csv", **JOB)
        self.assertEqual(raised.exception.file, "none.csv")
        with self.assertRaises(perseus.Error) as raised:
            perseus.plan(bad, **{**JOB, "microbatches": 0})
        self.assertIsNone(raised.exception.line)

    def test_errors_have_the_program_s_text(self):
        bad = self.scratch / "bad.csv"
        bad.write_text(PROFILE.read_text().replace("1410", "14l0", 1))
        cases = [
            ([bad, *FLAGS], (bad, JOB), perseus.Error, 2),
            (["none.csv", *FLAGS], ("none.csv", JOB), OSError, 2),
            ([PROFILE, *FLAGS, "--deadline=0.1"], (PROFILE, {**JOB, "deadline_s": 0.1}),
             perseus.UnreachableError, 3),
            ([PROFILE, *FLAGS, "--pp-ranks=7"], (PROFILE, {**JOB, "pp_ranks": 7}), perseus.Error, 2),
        ]
        for flags, (profile, job), kind, status in cases:
            with self.subTest(flags[-1]):
                with self.assertRaises(kind) as raised:
                    perseus.plan(profile, **job)
                # Python has keyword arguments in place of flags.
                text = self.run_program("plan", *flags, status=status).replace("--pp-ranks", "pp_ranks")
                self.assertIn(str(raised.exception), text)


class InterruptTest(unittest.TestCase):
    def test_ctrl_c_ends_planning(self):
        """This job would plan for hours."""
        endless = dict(JOB, microbatches=400, effort=1000)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            perseus.plan(PROFILE, **endless)
        timer.join()
        self.assertGreater(perseus.plan(PROFILE, **JOB).saving, 0)  # The next one is as usual.


class WrongArgumentTest(ScratchTest):
    """A wrong argument is a perseus.Error that names it, in one short line."""

    def check(self, kind, message, **arguments):
        with self.subTest(message), self.assertRaisesRegex(kind, message) as raised:
            perseus.plan(**{"profile": PROFILE, **JOB, **arguments})
        self.assertNotIn("\n", str(raised.exception))
        self.assertLess(len(str(raised.exception)), 500)

    def test_a_wrong_path_is_named(self):
        for name in ("job", "facts", "schedule_file", "graph"):
            for value in (7, "", "a\0b", "\ud800", ["x"]):
                arguments = {name: value, "schedule": None} if name in ("schedule_file", "graph") else {name: value}
                self.check(perseus.Error, f"{name}: .* is not a path \\(give a string", **arguments)
        self.check(perseus.Error, "profile: 'a.x00b' is not a path", profile="a\0b")
        # A name may be any bytes.
        self.check(OSError, "x.xFF: cannot read: No such file or directory \\(check", profile=b"x\xff")
        self.check(OSError, "is a directory \\(give", profile=self.scratch)

    def test_a_wrong_value_is_named(self):
        class Mute:
            def __repr__(self):
                raise RuntimeError("no repr")

        long = "x" * 100_000
        for name, value, message in [
            ("schedule", None, "the schedule is missing"),
            ("schedule", "1f1x", "unknown schedule"),
            ("schedule_file", "x.csv", "exclude each other"),
            ("microbatches", None, "number of microbatches is missing"),
            ("microbatches", 0, "microbatches: 0 is not a number from 1"),
            ("microbatches", 1.5, "microbatches: 1.5 is not"),
            ("microbatches", Mute(), "microbatches: <Mute instance at .* is not a number"),
            ("microbatches", long, "microbatches: 'x+...x+' is not a number"),
            ("microbatches", True, "microbatches: True is not a number"),
            ("blocking_power_w", None, "blocking power is missing \\(add blocking_power_w"),
            ("blocking_power_w", -1, "from 0 to 100000 .watts."),
            ("blocking_power_w", float("nan"), "blocking_power_w: nan is not"),
            ("blocking_power_w", 10**1000, "blocking_power_w: 1000.* is not a number"),
            ("blocking_power_w", list(range(1000)), "blocking_power_w: .0, 1, 2.* is not a number"),
            ("switch_latency_ms", 1e9, "switch_latency_ms: 1000000000.0 is not"),
            ("deadline_s", "soon", "deadline_s: 'soon' is not"),
            ("p2p_s", np.array([[1.0], [2.0]]), "p2p_s: array.* is not a number"),
            ("schedule", "\ud800", "schedule: .* is not a string \\(give a name"),
            ("schedule", "", "schedule: '' is not a string"),
            ("fold", "no", "fold: 'no' is neither True nor False \\(give one"),
            ("frontier", "no", "frontier: 'no' is neither True nor False \\(give one"),
            ("target", 7, "target: 7 is not one of no-slowdown"),
            ("target", "fast", "target: 'fast' is not one of"),
            ("target", np.array([1, 2]), "target: .*1.* is not one of no-slowdown"),
            ("target", [["no-slowdown"]], "target: ..no-slowdown.. is not one of"),
            ("price", 7, "price: 7 is not a pair \\(give"),
            ("switch_cost", {1}, "switch_cost: .1. is not a pair \\(give"),
            ("profile", None, "the profile is missing"),
            ("profile", {"stage": 1}, "profile: a column is not a sequence"),
            ("profile", [7], "profile: row 0 is not a sequence of stage.* \\(give five values"),
        ]:
            self.check(perseus.Error, message, **{name: value})
        for wrong, message in [
            (dict(max_switches=3, per_instruction=True), "max_switches and per_instruction exclude"),
            (dict(max_switches="few"), "max_switches: 'few' is not a number"),
            (dict(max_switches=-1), "max_switches: -1 is not a number"),
            (dict(per_instruction=1), "per_instruction: 1 is neither True nor False"),
            (dict(noise_percent=21), "noise_percent: 21 is not a number from 0 to 20 .percent."),
            (dict(noise_percent=0.01), "noise_percent: 0.01 is in percent, and plans need no margin .* 0 for no noise"),
            (dict(noise_percent=[1, 2, 3]), "noise_percent: .1, 2, 3. is neither a number nor a pair"),
            (dict(effort=-1), "effort: -1 is not a number"),
        ]:
            self.check(perseus.Error, message, **wrong)
        self.assertTrue(issubclass(perseus.Error, ValueError))

    def test_saving_writes_everything_or_nothing(self):
        found = perseus.plan(PROFILE, **JOB, frontier=False)
        for thing in (found, found.plan, found.schedule):
            with self.subTest(type(thing)):
                for path in (1, None, ""):  # open(1) would write to standard output, and close it.
                    with self.assertRaisesRegex(perseus.Error, "path: .* is not a path"):
                        thing.save(path)
                with self.assertRaisesRegex(OSError, "No space left on device \\(free space"):
                    thing.save("/dev/full")
                with self.assertRaisesRegex(OSError, "Is a directory \\(give"):
                    thing.save(self.scratch)
                thing.save(self.scratch / "file")
        self.assertEqual((self.scratch / "file").read_text(), found.schedule.csv)


class ArrayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = perseus.plan(PROFILE, **JOB)

    def test_instructions_and_numbers_are_those_of_the_file(self):
        plan, file = self.found.plan, json.loads(self.found.plan.to_json())
        rows = [(rank["pp_rank"], *(one[name] for name in ("kind", "microbatch", "frequency", "energy_j")),
                 round(one["start_s"] * 1e9), round(one["duration_s"] * 1e9))
                for rank in file["pp_ranks"] for one in rank["instructions"]]  # fmt: skip
        table = plan.instructions
        found = [table[name].tolist() for name in ("pp_rank", "kind", "microbatch", "frequency_mhz", "energy_j")]
        found += [np.round(table[name] * 1e9).astype(int).tolist() for name in ("start_s", "duration_s")]
        self.assertEqual(list(zip(*found)), rows)
        for name in ("time_s", "energy_j", "lower_bound_j", "gap", "switches"):
            self.assertEqual(getattr(plan, name), file[name], name)
        self.assertAlmostEqual(self.found.saving, 1 - plan.energy_j / file["baseline"]["energy_j"])

    def test_the_frontier_is_interpolated(self):
        frontier = self.found.frontier
        least = frontier.least_energy
        self.assertEqual(frontier.energy_at(frontier.times_s[0]), frontier.energies_j[0])
        self.assertEqual(frontier.energy_at(1e3), frontier.energies_j[least])
        self.assertTrue(np.isnan(frontier.energy_at(0)))

    def test_further_plans_of_the_same_job(self):
        deadline_s = self.found.baseline.time_s * 1.1
        plan = self.found.plan_for(deadline_s=deadline_s)
        self.assertLessEqual(plan.time_s, deadline_s)
        self.assertLess(plan.energy_j, self.found.plan.energy_j)
        self.assertIs(self.found.plans[plan.name], plan)

    def test_python_continues_while_it_plans(self):
        # The thread counts only while planning releases the global interpreter lock.
        began, ended, ticks = threading.Event(), threading.Event(), []

        def count():
            began.set()
            while not ended.is_set():
                ticks.append(None)
                ended.wait(1e-4)

        thread = threading.Thread(target=count)
        thread.start()
        began.wait()
        before = len(ticks)
        perseus.plan(PROFILE, **{**JOB, "microbatches": 48})
        during = len(ticks) - before
        ended.set()
        thread.join()
        self.assertGreater(during, 10)


class MemoryProfileTest(unittest.TestCase):
    def test_every_form_gives_the_same_plan(self):
        names = ["stage", "instruction", "frequency", "time", "energy"]
        columns = dict(zip(names, map(list, zip(*SMALL))))
        array = np.array(SMALL, dtype=[("stage", "i4"), ("instruction", "U9"), ("frequency", "f4"),
                                       ("time", "f8"), ("energy", "f8")])
        forms = {
            "rows": SMALL,
            "mappings": [dict(zip(names, row)) for row in SMALL],
            "columns": columns,
            "columns of arrays": {name: np.array(column) for name, column in columns.items()},
            "structured array": array,
            "generator": (row for row in SMALL),
        }
        for name, form in forms.items():
            with self.subTest(name):
                found = perseus.plan(form, **SMALL_JOB, target=["no-slowdown", "least-energy"])
                # By hand: 2 * (10 + 20) ms and 2 * (4 + 8) J; slow, 2 * (12 + 24) ms and 18 J.
                self.assertEqual(found.plan.time_s, 0.06)
                self.assertEqual(found.plan.energy_j, 24)
                slow = found.plans["least-energy"]
                self.assertEqual((slow.time_s, slow.energy_j), (0.072, 18))
                self.assertEqual(set(slow.instructions["frequency_mhz"]), {1200})

    def test_numbers_keep_all_digits(self):
        with open(PROFILE, newline="") as file:
            table = list(csv.DictReader(file))
        numbers = [
            {k: v if k == "instruction" else float(v) if "." in v else int(v) for k, v in row.items()}
            for row in table
        ]
        self.assertEqual(
            perseus.plan(numbers, **JOB).plan.energy_j, perseus.plan(PROFILE, **JOB).plan.energy_j
        )

    def test_wrong_profiles_are_refused(self):
        cases = {
            "a row too short": ([(0, "forward", 1410, 0.01)], "row 0 is not a sequence of stage, instruction"),
            "no rows": ([], "profile"),
            "a number": (3, "int is not a profile"),
            "an array of numbers": (np.zeros((3, 5)), "without field names"),
            "uneven columns": ({"stage": [0], "time": []}, "stage: 1, time: 0"),
            "a wrong number": ([(0, "forward", 1410, -1.0, 4.0)], "profile:2"),
            "a missing key": ([{"stage": 0, "time": 1}, {"stage": 0}], "a row lacks 'time'"),
            "texts": (["a,b,c,d,e"], "row 0 is not"),
        }
        for name, (profile, message) in cases.items():
            with self.subTest(name):
                with self.assertRaisesRegex(perseus.Error, message):
                    perseus.plan(profile, **SMALL_JOB)


class SearchedScheduleTest(ScratchTest):
    JOB = dict(microbatches=8, blocking_power_w=84, frontier=False)

    def setUp(self):
        super().setUp()
        self.run_program("synth", "--gpu=a100", "--stages=4", "-oprofile.csv")
        self.profile = self.scratch / "profile.csv"

    def test_more_microbatches_in_flight_save_more(self):
        fixed = perseus.plan(self.profile, schedule="1f1b", **self.JOB)
        found = perseus.plan(self.profile, schedule="auto", max_in_flight=[5, 4, 3, 1], **self.JOB)
        self.assertGreater(found.saving, fixed.saving + 0.02)
        self.assertEqual(found.schedule.name, "auto")
        self.assertEqual(found.schedule.in_flight, (5, 4, 3, 1))
        self.assertEqual(fixed.schedule.in_flight, (4, 3, 2, 1))
        found.schedule.save(self.scratch / "schedule.csv")
        same = perseus.plan(
            self.profile, schedule_file=self.scratch / "schedule.csv", blocking_power_w=84,
            frontier=False,
        )
        self.assertEqual(same.plan.energy_j, found.plan.energy_j)

    def test_memory_in_bytes(self):
        memory = dict(memory_gib=10, activation_mib=1024, model_gib=[5, 6, 7, 8.5])
        found = perseus.plan(self.profile, schedule="auto", **memory, **self.JOB)
        self.assertEqual(found.schedule.in_flight, (5, 4, 3, 1))
        self.assertIn("activations are given", found.schedule.memory_source)
        for wrong, about in [
            (dict(max_in_flight=0), "max_in_flight: 0 is not a number"),
            (dict(max_in_flight=[4, "x"]), "max_in_flight: 'x'"),
            (dict(memory_gib=-1, activation_mib=1), "memory_gib: -1"),
            (dict(memory_gib=10), "activations is missing"),
        ]:
            with self.subTest(about), self.assertRaisesRegex(perseus.Error, about):
                perseus.plan(self.profile, schedule="auto", **wrong, **self.JOB)

    def test_the_whole_tradeoff(self):
        job = dict(microbatches=8, blocking_power_w=84)
        found = perseus.search_schedules(self.profile, more=[1, 0, 1], **job)
        self.assertEqual([row.more_in_flight for row in found.rows], [0, 1])
        same, more = found.rows
        self.assertEqual(found.fixed.in_flight, (4, 3, 2, 1))
        self.assertEqual(more.in_flight, (5, 4, 3, 1))
        self.assertGreater(more.saving, same.saving + 0.02)
        self.assertLessEqual(more.saving, more.most_saving)
        self.assertAlmostEqual(more.saving, 1 - more.energy_j / found.baseline_energy_j)
        self.assertLessEqual(more.time_s, found.baseline_time_s)
        self.assertIn("One more microbatch in flight on pp_ranks 0 to 2 saves", found.conclusion)
        self.assertIsNone(found.fitting)
        # It is what the program says.
        printed = json.loads(
            self.run_program("schedule", "search", "profile.csv", "--more=0,1", "--microbatches=8",
                             "--blocking-power=84", "--json")
        )
        self.assertEqual(printed["rows"][1]["energy_j"], more.energy_j)
        self.assertEqual(printed["conclusion"], found.conclusion)
        # A schedule of a row can be planned by itself.
        more.schedule.save(self.scratch / "more.csv")
        planned = perseus.plan(
            self.profile, schedule_file=self.scratch / "more.csv", blocking_power_w=84,
            frontier=False, deadline_s=found.baseline_time_s, per_instruction=True,
        )
        self.assertLessEqual(planned.plan.energy_j, more.energy_j)

    def test_a_tradeoff_in_bytes(self):
        job = dict(microbatches=8, blocking_power_w=84, more=0)
        memory = dict(activation_mib=1024, memory_gib=10, model_gib=4)
        found = perseus.search_schedules(self.profile, **memory, **job)
        self.assertEqual(found.fitting.in_flight[0], 6)
        self.assertIn("activations are given", found.fitting.schedule.memory_source)
        limited = perseus.search_schedules(self.profile, max_switches=2, **job)
        self.assertLessEqual(limited.rows[0].changes_per_gpu, 2)
        for wrong, about in [
            (dict(more=-1), "more: -1"),
            (dict(more=[]), "more has no numbers"),
            (dict(blocking_power_w=5000), "blocking power of 5000 W is not below"),
            (dict(memory_gib=10), r"activations is missing \(add activation_mib"),
            (dict(microbatches=None), "microbatches"),
        ]:
            with self.subTest(about), self.assertRaisesRegex(perseus.Error, about):
                perseus.search_schedules(self.profile, **{**job, **wrong})
        with self.assertRaisesRegex(perseus.UnreachableError, "1f1b needs 4.000"):
            perseus.search_schedules(self.profile, activation_mib=1024, memory_gib=1, **job)

    def test_errors_name_the_keyword_arguments(self):
        for wrong, about in [
            (dict(max_in_flight=[4, 4]), r"^max_in_flight has 2 numbers for 4 pp_ranks"),
            (dict(memory_gib=10), r"\(add activation_mib, or"),
            (dict(memory_gib=2, activation_mib=1, max_in_flight=4),
             r"\(remove max_in_flight, or memory_gib\)"),
            (dict(memory_gib=2, activation_mib=1, model_gib=3),
             r"nothing of memory_gib=2 for activations \(correct memory_gib or model_gib\)"),
            (dict(activation_mib=1, model_gib=3), r"^model_gib needs .* \(add memory_gib\)"),
            (dict(activation_mib=[1, 2]), r"^activation_mib has 2 numbers"),
            (dict(activation_mib=1, kept_mib=1), r"^kept_mib is for recomputation"),
            (dict(fold=True), r"\(remove fold, or"),
            (dict(schedule="1f1b", max_in_flight=4),
             r"^max_in_flight is for a .* \(add schedule=\"auto\"\)"),
            (dict(chunks=2), r"\(remove chunks, or"),
        ]:
            with self.subTest(about), self.assertRaisesRegex(perseus.Error, about):
                perseus.plan(self.profile, **{"schedule": "auto", **wrong}, **self.JOB)
        with self.assertRaises(perseus.Error) as raised:
            perseus.plan(self.profile, schedule="auto", memory_gib=2, activation_mib=1, model_gib=3, **self.JOB)
        self.assertEqual((raised.exception.setting, raised.exception.remedy),
                         ("memory_gib", "correct memory_gib or model_gib"))
        # A path that looks like a flag stays as it is.
        with self.assertRaisesRegex(OSError, "a--memory.csv"):
            perseus.plan("a--memory.csv", schedule="auto", **self.JOB)

    def synthesize(self, *flags):
        profile = self.scratch / "synthetic.csv"
        self.run_program("synth", "--gpu", "a100", "--stages", "4", *flags, "-o", profile)
        return profile

    def test_stages_in_a_v(self):
        profile = self.synthesize("--chunks", "2", "--fold")
        job = dict(self.JOB, chunks=2, schedule="auto")
        loop = perseus.plan(profile, **job)
        v = perseus.plan(profile, fold=True, **job)
        # The second chunk of pp_rank 0 is stage 7 in a V, and stage 4 in a loop.
        self.assertIn("7F0", v.schedule.csv.splitlines()[0])
        self.assertIn("4F0", loop.schedule.csv.splitlines()[0])
        for wrong, about in [
            (dict(job, fold="yes"), "fold: 'yes' is neither True nor False"),
            (dict(job, fold=True, schedule="zb-v"), "for a schedule that is searched for"),
        ]:
            with self.subTest(about), self.assertRaisesRegex(perseus.Error, about):
                perseus.plan(profile, **wrong)
        with self.assertRaisesRegex(perseus.Error, "two chunks on each pp_rank"):
            perseus.plan(self.profile, schedule="auto", fold=True, **self.JOB)

    def test_recomputation_keeps_a_part(self):
        profile = self.synthesize("--instructions", "forward,backward,recompute")
        memory = dict(self.JOB, schedule="auto", activation_mib=1024, memory_gib=3.5)
        found = perseus.plan(profile, kept_mib=100, **memory)
        # Only what does not fit is recomputed.
        self.assertIn("0R3", found.schedule.csv)
        self.assertNotIn("1R", found.schedule.csv)
        for wrong, about in [
            (dict(kept_mib=-1), "kept_mib: -1"),
            (dict(kept_mib=2048), "above the memory of its activations"),
        ]:
            with self.subTest(about), self.assertRaisesRegex(perseus.Error, about):
                perseus.plan(profile, **wrong, **memory)


class OtherJobTest(ScratchTest):
    def test_a_job_file(self):
        (self.scratch / "profile.csv").write_text(PROFILE.read_text())
        job = self.scratch / "job.toml"
        job.write_text(
            'profile = "profile.csv"\n[pipeline]\nschedule = "1f1b"\nmicrobatches = 6\n'
            "[gpu]\nblocking_power_w = 83.64\ngpus_per_stage = 8\n"
        )
        found = perseus.plan(job=job)
        self.assertEqual(found.plan.energy_j, perseus.plan(PROFILE, **JOB).plan.energy_j)
        again = perseus.plan(job=job, microbatches=7)
        self.assertEqual(len(again.plan.instructions), 8 * 7 * 2)

    def test_probable_mistakes_are_warnings(self):
        with self.assertWarnsRegex(UserWarning, "has a frequency of 14 MHz"):
            perseus.plan([(s, k, f // 100, t, e) for s, k, f, t, e in SMALL], **SMALL_JOB)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            perseus.plan(SMALL, **SMALL_JOB)

    def test_hardware_facts(self):
        facts = PROFILE.parent / "hardware-facts.toml"
        job = {**JOB, "blocking_power_w": None}
        numbers = {**JOB, "blocking_power_w": 86.25, "switch_latency_ms": 12.5, "switch_cost": (0.00011, 0)}
        of_numbers = perseus.plan(PROFILE, **numbers).plan
        lines = facts.read_text().splitlines()
        without_rate = self.scratch / "facts.toml"
        without_rate.write_text(
            "\n".join(line for line in lines if not line.startswith("max_changes_per_s")) + "\n"
        )
        of_facts = perseus.plan(PROFILE, **job, facts=without_rate).plan
        self.assertAlmostEqual(of_facts.energy_j, of_numbers.energy_j)
        # 20 changes per second of 8 GPUs are fewer than the limit that would be picked.
        slow = self.scratch / "slow.toml"
        slow.write_text(facts.read_text().replace("{value = 80, low = 80", "{value = 20, low = 20"))
        unlimited = perseus.plan(PROFILE, **{**numbers, "switch_latency_ms": 0}, per_instruction=True).plan
        limited = perseus.plan(PROFILE, **job, facts=slow, switch_latency_ms=0).plan
        most = int(0.95 * 20 / 8 * limited.deadline_s)
        self.assertLess(limited.switches, unlimited.switches)
        self.assertLessEqual(limited.switches, most * 8)
        self.assertIn(f"at most {most} switches per GPU", limited.target)
        with self.assertRaisesRegex(perseus.Error, "not TOML"):
            perseus.plan(PROFILE, **job, facts=PROFILE)

    def test_limits_and_costs_of_clock_changes(self):
        job = dict(schedule="1f1b", microbatches=4, blocking_power_w=83.64)
        free = perseus.plan(PROFILE, **job, per_instruction=True).plan
        few = perseus.plan(PROFILE, **job, max_switches=2).plan
        self.assertIn("at most 2 switches per GPU", few.target)
        self.assertLess(few.switches, free.switches)
        self.assertLessEqual(few.switches, 2 * 8)
        self.assertGreaterEqual(few.energy_j, free.energy_j)
        self.assertLessEqual(few.time_s, free.deadline_s)
        costly = perseus.plan(PROFILE, **job, max_switches=2, switch_cost=(0.001, 5)).plan
        self.assertGreater(costly.energy_j, few.energy_j)
        for wrong in (-1, 2.5, "2"):
            with self.assertRaisesRegex(perseus.Error, "max_switches"):
                perseus.plan(PROFILE, **job, max_switches=wrong)
        for wrong in (0.001, (0.001,), (-1, 0), (0, "x")):
            with self.assertRaisesRegex(perseus.Error, "switch_"):
                perseus.plan(PROFILE, **job, switch_cost=wrong)

    def test_a_general_graph(self):
        graph = self.scratch / "graph.json"
        options = [{"frequency": 1410, "time": 1, "energy": 10}, {"frequency": 900, "time": 2, "energy": 6}]
        graph.write_text(json.dumps({"instructions": [
            {"name": "a", "resource": "x", "options": options},
            {"name": "b", "resource": "y", "options": options},
            {"name": "c", "resource": "x", "options": options}]}))
        table = perseus.plan(graph=graph).plan.instructions
        self.assertEqual(list(table["name"]), ["a", "c", "b"])
        # b may take 2 s, twice its fastest time.
        self.assertEqual(list(table["frequency_mhz"]), [1410, 1410, 900])


if __name__ == "__main__":
    unittest.main()
