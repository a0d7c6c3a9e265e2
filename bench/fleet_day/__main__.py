"""A day of a fleet, compressed: jobs, stragglers true and false, tokens that are renewed and revoked,
a replica and the database killed, clocks that step. At its end, the audit trail, the metrics, the
database and this driver must tell the same story.

    python3 bench/fleet_day --program build/release/bin/perseus --nodes 2000 --minutes 10

Nodes are connections of this process with the protocol of `perseus node`: an event stream, and a
report every 5 s. Each node runs one pipeline. Every change carries a number of its own as its
reason, so each one is found in the audit trail again. Needs PostgreSQL, and libfaketime to step
clocks. Exits with 1 if something does not agree.
"""
import argparse
import asyncio
import collections
import faulthandler
import json
import pathlib
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

from http_client import Connection, Lost
from machines import FAKETIME, Postgres, Replica

STAGES = 4
REPORT_S = 5.0
STEP_S = 2.5
TRUE_SLOWDOWN = 1.3
FALSE_SLOWDOWN = 1.5
SETTLE_S = 60
CHECK_S = 300  # For the registration of the jobs, and for the checks at the end.


class Day:
    def __init__(self, options, directory):
        self.options = options
        self.random = random.Random(options.seed)
        self.directory = directory
        self.postgres = Postgres(directory / "postgres")
        self.servers = [Replica(options.program, directory, self.postgres.address(), number)
                        for number in range(2)]
        self.replicas = [("127.0.0.1", server.port) for server in self.servers]
        self.control = Connection(self.replicas, 0)
        self.changing = asyncio.Lock()
        self.operator = ""
        self.changes = 0
        self.done = {}        # Number of a change -> action, if the server confirmed it.
        self.uncertain = {}   # The same, if its answer was lost.
        self.statuses = collections.Counter()
        self.latencies = []
        self.jobs = []
        self.refused_joins = 0
        self.happening = []   # Tasks: the nodes, and the events of the day.

    async def change(self, action, method, target, body=b"", token=None, connection=None):
        """Makes a change that is recorded as `action`. Repeats it until the server confirms it."""
        while True:
            self.changes += 1
            number = f"change-{self.changes}"
            self.uncertain[number] = action
            try:
                status, text = await (connection or self.control).ask(
                    method, target, self.operator if token is None else token, body,
                    **{"Perseus-Reason": number})
            except ConnectionRefusedError:
                del self.uncertain[number]
                await asyncio.sleep(0.5)
                continue
            except Lost:
                await asyncio.sleep(0.5)
                continue
            self.statuses[status] += 1
            if status in (429, 503):  # Nothing was changed.
                if status == 429:
                    del self.uncertain[number]
                await asyncio.sleep(0.5)
                continue
            del self.uncertain[number]
            if status < 300:
                self.done[number] = action
            elif status not in (401, 403, 404, 409):
                raise RuntimeError(f"{method} {target}: {status} {text.decode()}")
            return status, json.loads(text) if text else {}

    async def get(self, target):
        while True:
            try:
                async with self.changing:
                    status, text = await self.control.ask("GET", target, self.operator)
            except (Lost, ConnectionRefusedError):
                status = 0
            if status == 200:
                return text
            await asyncio.sleep(0.5)

    async def operate(self, *arguments, **named):
        async with self.changing:
            return await self.change(*arguments, **named)

    async def begin(self):
        _, token = await self.operate("token.create", "POST", "/v1/tokens",
                                      {"scope": "operator", "name": "driver"}, token="")
        self.operator = token["token"]
        _, join = await self.operate("token.create", "POST", "/v1/tokens",
                                     {"scope": "join", "nodes": ["node-*"], "name": "join"})
        self.join = join["token"]
        profile = self.directory / "profile.csv"
        subprocess.run([self.options.program, "synth", "--gpu", "a100", "--stages", str(STAGES),
                        "-o", profile], check=True, capture_output=True)
        self.profile = profile.read_bytes()
        per_job = self.options.nodes // self.options.jobs
        self.jobs = [Job(self, f"job-{number}", per_job) for number in range(self.options.jobs)]
        await asyncio.gather(*(job.register() for job in self.jobs))

    # --- What happens in the day.

    async def end_and_register(self):
        job = self.random.choice(self.jobs)
        if not job.id:
            return  # It begins just now.
        await job.end()
        await asyncio.sleep(2)
        await job.register()

    async def true_straggler(self):
        job = self.random.choice(self.jobs)
        node = self.random.choice(job.nodes)
        node.slowdown = TRUE_SLOWDOWN
        await asyncio.sleep(40)
        node.slowdown = 1.0

    async def false_notice(self):
        job = self.random.choice(self.jobs)
        pipeline = self.random.randrange(len(job.nodes))
        await self.operate("straggler.put", "PUT", f"/v1/jobs/{job.id}/stragglers/{pipeline}",
                           {"slowdown": FALSE_SLOWDOWN, "expires_in": 3600})

    async def new_target(self):
        job = self.random.choice(self.jobs)
        percent = self.random.choice([0, 1, 2, 5, 10])
        await self.operate("job.target", "PUT", f"/v1/jobs/{job.id}/target",
                           {"kind": "slowdown", "value": percent})

    async def revoke(self):
        node = self.random.choice(self.random.choice(self.jobs).nodes)
        if node.token_id:
            await self.operate("token.revoke", "DELETE", f"/v1/tokens/{node.token_id}")

    async def renew(self):
        await self.random.choice(self.random.choice(self.jobs).nodes).enroll(is_renewal=True)

    async def crash_replica(self):
        server = self.random.choice(self.servers)
        server.crash()
        await asyncio.sleep(3)
        await asyncio.to_thread(server.start)

    async def crash_database(self):
        self.postgres.crash()
        await asyncio.sleep(2)
        await asyncio.to_thread(self.postgres.start)

    async def step_clocks(self):
        for server in self.servers:
            server.step_clock(self.random.choice([-2, -1, 0, 1]))

    async def run(self):
        end = time.monotonic() + 60 * self.options.minutes
        usual = [self.end_and_register, self.true_straggler, self.false_notice, self.new_target,
                 self.revoke, self.renew, self.renew]
        rare = [self.crash_replica, self.crash_database, self.step_clocks]
        self.happening = [asyncio.create_task(node.live()) for job in self.jobs for node in job.nodes]
        events = collections.Counter()
        number = 0
        while time.monotonic() < end:
            number += 1
            # One of each kind of disaster for twenty usual events, and not two at once.
            if number % 20 == 0:
                event = rare[number // 20 % len(rare)]
                await event()
            else:
                event = self.random.choice(usual)
                self.happening.append(asyncio.create_task(event()))
            events[event.__name__] += 1
            await asyncio.sleep(self.options.pause)
        print("events:", dict(events))
        await asyncio.sleep(SETTLE_S)  # The last events end, and nodes follow the last assignments.

    async def end(self):
        """Ends all tasks. Returns the errors of those that failed."""
        for task in self.happening:
            task.cancel()
        ended = await asyncio.gather(*self.happening, return_exceptions=True)
        return [f"the driver failed: {error!r}" for error in ended if isinstance(error, Exception)]

    # --- Whether all tell the same.

    async def check(self):
        problems = []
        records, after = [], 0
        while True:
            page = json.loads(await self.get(f"/v1/audit?order=oldest&limit=1000&after={after}"))
            records += page["records"]
            if "next" not in page:
                break
            after = page["next"]
        recorded = collections.Counter(
            (record["reason"], record["action"]) for record in records
            if record["reason"].startswith("change-"))
        for number, action in self.done.items():
            if recorded[number, action] != 1:
                problems.append(f"{action} {number} was confirmed and is recorded "
                                f"{recorded[number, action]} times")
        for (number, action), count in recorded.items():
            known = self.done.get(number) or self.uncertain.get(number)
            if known is None or count > 1:
                problems.append(f"the audit trail has {action} {number} {count} times")
        if [record["number"] for record in records] != list(range(1, len(records) + 1)):
            problems.append("the numbers of the audit trail have gaps")

        listed = json.loads(await self.get("/v1/jobs?limit=500"))["jobs"]
        mine = {job.id for job in self.jobs}
        in_database = set(self.postgres.ask("SELECT id FROM jobs WHERE ended = 0"))
        if not mine == {job["id"] for job in listed} == in_database:
            problems.append(f"running jobs: {len(mine)} here, {len(listed)} listed, "
                            f"{len(in_database)} in the database")
        states, nodes = collections.Counter(), 0
        for job in self.jobs:
            shown = json.loads(await self.get(f"/v1/jobs/{job.id}"))
            for node in shown["nodes"]:
                states[node["state"]] += 1
                if node["state"] != "following":
                    print(f"{job.key}: assignment {shown['assignment']['version']} from step "
                          f"{shown['assignment'].get('from_step')}, last {shown['last_step']}; {node}")
                nodes += 1
            if shown["planning"] != "done":
                problems.append(f"{job.key} is not planned")
        if self.refused_joins:
            problems.append(f"{self.refused_joins} joins were refused: a node needed an operator")
        if nodes != len([node for job in self.jobs for node in job.nodes]):
            problems.append(f"{nodes} nodes are attached")
        if states["following"] != nodes:
            problems.append(f"states of nodes: {dict(states)}")
        metrics = collections.Counter()
        for line in (await self.get("/metrics")).decode().splitlines():
            if line.startswith("perseus_server_nodes{"):
                metrics[line.split('state="')[1].split('"')[0]] += int(float(line.split()[-1]))
        if {state: count for state, count in metrics.items() if count} != dict(states):
            problems.append(f"the metrics say {dict(metrics)}, the jobs {dict(states)}")
        actions = collections.Counter(record["action"] for record in records)
        notices = sum(action == "straggler.put" for action in self.done.values())
        if not 0 < notices <= actions["straggler.suspend"] + 5 + self.recent_notices(records):
            problems.append(f"{notices} false notices, {actions['straggler.suspend']} suspended")
        if bad := {status: count for status, count in self.statuses.items()
                   if status >= 500 and status != 503}:
            problems.append(f"answers: {bad}")
        print("audit actions:", dict(actions))
        print("changes:", len(self.done), "confirmed,", len(self.uncertain), "without an answer")
        return problems

    def recent_notices(self, records):
        """Notices of jobs that ended or got another one before steps could contradict them."""
        ends = sum(record["action"] == "job.end" for record in records)
        return ends


class Job:
    def __init__(self, day, key, pipelines):
        self.day, self.key = day, key
        self.id, self.time_s, self.began = "", 1.0, 0.0
        self.nodes = [Node(self, f"node-{key}-{pipeline}", pipeline)
                      for pipeline in range(pipelines)]

    async def register(self):
        body = {"key": self.key, "pipelines": len(self.nodes), "tensor_parallel": 1,
                "schedule": {"kind": "1f1b", "pp_ranks": STAGES, "microbatches": 8},
                "gpu": {"blocking_power_w": 83.6}}
        _, job = await self.day.operate("job.register", "POST", "/v1/jobs", body)
        await self.day.operate("job.profile", "PUT", f"/v1/jobs/{job['id']}/profile",
                               self.day.profile)
        shown = {}
        while "assignment" not in shown:
            await asyncio.sleep(0.5)
            shown = json.loads(await self.day.get(f"/v1/jobs/{job['id']}"))
        self.time_s = shown["assignment"]["baseline"]["time_s"]
        self.began = time.monotonic()
        self.id = job["id"]

    async def end(self):
        ended, self.id = self.id, ""
        if ended:
            await self.day.operate("job.end", "POST", f"/v1/jobs/{ended}/end")

    def step(self):
        return int((time.monotonic() - self.began) / STEP_S)


class Node:
    def __init__(self, job, name, pipeline):
        self.job, self.name, self.pipeline = job, name, pipeline
        day = job.day
        self.requests = Connection(day.replicas, pipeline)
        self.tokens = Connection(day.replicas, pipeline)
        self.stream = Connection(day.replicas, pipeline)
        self.token = self.token_id = ""
        self.token_since, self.suspects = 0.0, False
        self.attempt = secrets.token_hex(32)
        self.attaching = self.attached = ""
        self.version, self.since, self.last = 0, -1, 0
        self.slowdown = 1.0
        self.plan_s = 0.0  # The time of an iteration with the plan that the node follows.
        self.enrolling = asyncio.Lock()

    async def enroll(self, is_renewal=False):
        async with self.enrolling:
            if is_renewal and not self.token:
                return
            # The answer may be lost with its server. The same attempt gets another token.
            status, answer = await self.job.day.change(
                "token.renew" if is_renewal else "token.create", "POST",
                f"/v1/nodes/{self.name}/token", b"" if self.token else {"attempt": self.attempt},
                token=self.token or self.job.day.join, connection=self.tokens)
            self.tokens.close()
            if status < 300:
                self.token, self.token_id = answer["token"], answer["id"]
                self.token_since = time.monotonic()
                if is_renewal:
                    self.attempt = secrets.token_hex(32)
                return
            if status == 409:
                self.job.day.refused_joins += 1
            self.token = ""

    async def listen(self):
        while True:
            while not self.token:
                await asyncio.sleep(1)
            try:
                last = f"{self.attaching}:{self.version}" if self.attaching else ""
                async for event, _, data in self.stream.events(
                        f"/v1/nodes/{self.name}/events", self.token, last):
                    data = json.loads(data) if event != "refused" else {}
                    if event == "assignment" and data["job"] == self.attaching:
                        if data["version"] > self.version:
                            self.version = data["version"]
                            plan = data["files"].get(data["plans"].get(str(self.pipeline)))
                            self.plan_s = plan["time_s"] if plan else self.job.time_s
                            self.since = max(self.job.step(), data["from_step"])
            except Lost:
                pass
            await asyncio.sleep(1 + self.job.day.random.random())

    async def ask(self, method, target, body):
        day = self.job.day
        begun = time.monotonic()
        status, text = await self.requests.ask(method, target, self.token, body)
        day.statuses[status] += 1
        if target.endswith("/reports"):
            day.latencies.append(time.monotonic() - begun)
        # A job may end while its nodes attach.
        if status == 400 and b"has ended" not in text:
            raise RuntimeError(f"{method} {target}: {text.decode()} for {json.dumps(body)}")
        # Another replica may not have read a new token yet. Later, a renewal shows whether the token
        # is gone.
        self.suspects = status == 401 and time.monotonic() - self.token_since > 10
        return status, json.loads(text) if text else {}

    async def attach(self, job_id):
        ranks = [{"dp_rank": self.pipeline, "pp_rank": rank} for rank in range(STAGES)]
        # The first assignment may come before the answer.
        self.attaching, self.version, self.since, self.last = job_id, 0, -1, self.job.step()
        status, _ = await self.ask("PUT", f"/v1/nodes/{self.name}/jobs/{job_id}",
                                   {"ranks": ranks, "restarted": True})
        if status == 200:
            self.attached = job_id

    def busy_s(self):
        return max(self.plan_s, self.job.time_s * self.slowdown)

    async def report(self):
        step = self.job.step()
        slowest_s = max(node.busy_s() for node in self.job.nodes)
        steps = [{"step": number, "dp_rank": self.pipeline, "time_s": slowest_s,
                  "busy_s": self.busy_s(), "energy_j": 1000.0,
                  "version": self.version, "ranks": STAGES}
                 for number in range(max(self.last + 1, step - 3), step + 1)]
        status, answer = await self.ask("POST", f"/v1/nodes/{self.name}/reports", {"jobs": [
            {"job": self.attached, "acknowledged": self.version,
             "following": self.version, "since_step": self.since, "steps": steps}]})
        if status == 200:
            self.last = step
            if answer["not_attached"]:
                self.attached = ""

    async def live(self):
        await asyncio.sleep(REPORT_S * self.job.day.random.random())
        listener = asyncio.create_task(self.listen())
        try:
            while True:
                await self.turn()
                await asyncio.sleep(REPORT_S if self.attached else 1)
        finally:
            listener.cancel()

    async def turn(self):
        try:
            if not self.token or self.suspects:
                await self.enroll(is_renewal=self.suspects)
                self.suspects = False
            elif self.job.id and self.attached != self.job.id:
                await self.attach(self.job.id)
            elif self.attached:
                await self.report()
        except (Lost, ConnectionRefusedError):
            pass


async def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/perseus")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two events")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the logs of a good day")
    options = parser.parse_args()
    options.program = str(pathlib.Path(options.program).absolute())
    if not FAKETIME.exists():
        print(f"{FAKETIME} is absent: the clocks do not step (apt-get install faketime)")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="fleet-day-"))
    limit_s = 60 * options.minutes + SETTLE_S + 2 * CHECK_S
    # If the end hangs as well, the program prints where, and ends with 1. Its children end with it.
    faulthandler.dump_traceback_later(limit_s + 120, exit=True)
    day = Day(options, directory)
    problems = []
    try:
        async with asyncio.timeout(limit_s):
            await day.begin()
            await day.run()
            problems += await day.check()
    except TimeoutError:
        problems.append(f"the day was not over after {limit_s:.0f} s (look at the logs)")
    problems += await day.end()
    day.latencies.sort()
    if day.latencies:
        p50, p99 = (1e3 * day.latencies[int(part * (len(day.latencies) - 1))] for part in (0.5, 0.99))
        print(f"{len(day.latencies)} reports, p50 {p50:.1f} ms, p99 {p99:.1f} ms; "
              f"answers {dict(day.statuses)}")
    codes = [server.stop() for server in day.servers] + [day.postgres.stop()]
    if any(codes):
        problems.append(f"exit statuses of the servers and PostgreSQL: {codes}")
    for problem in problems[:20]:
        print("PROBLEM:", problem)
    if problems or options.keep:
        print("logs:", directory)
    else:
        shutil.rmtree(directory)
    return 1 if problems else 0


try:
    sys.exit(asyncio.run(main()))
except KeyboardInterrupt:
    sys.exit(130)
