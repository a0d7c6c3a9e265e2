#!/usr/bin/env python3
"""Files of an earlier version work with this program: a profile, a plan, a job directory, an agent's state
and a server's database.

  upgrade.py record PROGRAM SOURCES VERSION_DIRECTORY   writes them with a program, once for each release
  upgrade.py check PROGRAM VERSION_DIRECTORY            uses them with a later program

`expected.json` of a directory has what the version that wrote the files printed about them.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

sys.dont_write_bytecode = True  # No __pycache__ in the source tree.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "deploy"))
from processes import Processes  # noqa: E402

STEPS = 3


def run(program, *arguments, cwd):
    done = subprocess.run([program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"perseus {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout


def start_agent(processes, program, node, name):
    processes.start(name, [program, "agent", "--devices", f"virtual:{node}", "--socket", f"{name}.sock", "--state",
                           f"{name}.json", "--metrics", "off"])
    processes.soon((processes.scratch / f"{name}.sock").exists, f"the agent {name} listens")


def start_server(processes, program):
    processes.start("server", [program, "serve", "--listen", "127.0.0.1:0", "--database", "sqlite:store.db"])
    os.environ["PERSEUS_SERVER"] = f"http://127.0.0.1:{processes.port_of('server')}"


def shown(processes, program):
    """The job of the server, without what time changes."""
    def show():
        return json.loads(run(program, "job", "show", "upgraded", "--json", cwd=processes.scratch))

    processes.soon(lambda: show().get("assignment"), "the server has a plan of the job")
    return {key: show()[key] for key in ("key", "pipelines", "target")}


def looked_at(program, root):
    """What the program says about the files."""
    evaluated = run(program, "evaluate", "plan.json", "--profile", "profile.csv", "--json", cwd=root)
    order = run(program, "schedule", "run", cwd=root)
    run(program, "trace", "run", "-o", "trace.json", cwd=root)
    events = json.loads((root / "trace.json").read_text())["traceEvents"]
    planned = run(program, "plan", "profile.csv", "--schedule", "1f1b", "--microbatches", 6, "--blocking-power",
                  84, "--no-frontier", "--per-instruction", "--json", cwd=root)
    return {"evaluation": numbers(json.loads(evaluated)), "schedule": order.splitlines(),
            "instructions": sum(event.get("ph") == "X" for event in events),
            "baseline": json.loads(planned)["baseline"]}


def without_new(found, recorded):
    """What was found, without the keys that the earlier version did not have."""
    if not isinstance(found, dict) or not isinstance(recorded, dict):
        return found
    return {key: without_new(found[key], value) for key, value in recorded.items() if key in found}


def numbers(value):
    """The times and energies of a summary, by their place in it."""
    if isinstance(value, dict):
        found = {key: numbers(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return value if isinstance(value, float) else None


def record(program, sources, directory):
    with Processes() as processes:
        root = processes.scratch
        shutil.copytree(sources / "examples", root / "examples")
        loop = root / "examples/closed-loop"
        run(program, "synth", "--gpu", "a100", "--stages", 4, "--work-scale", 0.3, "-o", loop / "truth.csv", cwd=root)
        shutil.copy(loop / "truth.csv", root / "profile.csv")
        run(program, "plan", "profile.csv", "--schedule", "1f1b", "--microbatches", 6, "--pipelines", 2,
            "--blocking-power", 84, "--no-frontier", "-o", "out", cwd=root)
        shutil.copy(root / "out/plans/no-slowdown.json", root / "plan.json")
        # The state of the agent of node b remains, because this agent has leased GPUs.
        trainer = ["trainer", "--job", loop / "job.toml", "--job-directory", "run", "--steps", STEPS]
        for node in ("a", "b"):
            start_agent(processes, program, f"{loop}/{node}.toml", node)
            trainer += ["--node", loop / f"{node}.toml", "--agent", f"{node}.sock"]
        run(program, *trainer, cwd=root)
        processes.end("a", "b")
        (root / "run/clock").unlink()
        start_server(processes, program)
        run(program, "job", "register", "upgraded", "--job", loop / "job.toml", "--profile", "profile.csv", cwd=root)
        expected = {"job": shown(processes, program)}
        processes.end("server")
        expected.update(looked_at(program, root))
        with contextlib.closing(sqlite3.connect(root / "store.db")) as store:
            (root / "store.sql").write_text("".join(f"{line}\n" for line in store.iterdump()))
        (root / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for name in ("profile.csv", "plan.json", "b.json", "store.sql", "expected.json"):
            shutil.copy(root / name, directory / name)
        shutil.copytree(root / "run", directory / "run")
        for source in ("perseus/runtime/client/perseus.h", "examples/client/loop.c"):  # For abi.py.
            shutil.copy(sources / source, directory)
        for log in (directory / "run/ranks").iterdir():
            log.write_text(re.sub('"host":"[^"]*"', '"host":"node"', log.read_text()))


def check(program, directory):
    with Processes() as processes:
        root = processes.scratch
        shutil.copytree(directory, root, dirs_exist_ok=True)
        with contextlib.closing(sqlite3.connect(root / "store.db")) as store:
            store.executescript((root / "store.sql").read_text())
        os.chmod(root / "store.db", 0o600)
        expected = json.loads((root / "expected.json").read_text())
        start_server(processes, program)
        found = {"job": shown(processes, program)}
        trail = run(program, "audit", "--all", "--json", cwd=root).splitlines()
        processes.end("server")
        if not trail or [json.loads(line)["number"] for line in trail] != list(range(1, len(trail) + 1)):
            sys.exit(f"{directory.name}: the audit trail is {trail}")
        found.update(looked_at(program, root))
        for key, value in expected.items():
            if without_new(found[key], value) != value:
                sys.exit(f"{directory.name}: {key} was {value}, and is {found[key]}")
        # An agent starts with the state of the earlier agent.
        loop = root / "examples/closed-loop"
        shutil.copytree(pathlib.Path(__file__).parents[2] / "examples/closed-loop", loop)
        shutil.copy(root / "profile.csv", loop / "truth.csv")
        start_agent(processes, program, f"{loop}/b.toml", "b")
        run(program, "gpu", "list", "--socket", "b.sock", cwd=root)
    print(f"{directory.name}: the files work")


def main():
    program = pathlib.Path(sys.argv[2]).absolute()
    if sys.argv[1] == "record":
        record(program, pathlib.Path(sys.argv[3]).absolute(), pathlib.Path(sys.argv[4]).absolute())
    else:
        check(program, pathlib.Path(sys.argv[3]).absolute())


main()
