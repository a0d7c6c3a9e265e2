#!/usr/bin/env python3
"""Writes and reads the frequency lists of lowtime and of Zeus's pipeline frequency optimizer.

  frequency_lists.py PLAN.json            prints the lists of a plan
  frequency_lists.py PLAN.json LISTS.py   prints the plan with the clocks of the lists

A file of lists has one list for each pp_rank, with a pair for each instruction that has a clock, in
execution order: [[('forward', 1410), ('backward', 1200)], ...]. Older files have bare frequencies
in place of pairs. Such a file is data here: nothing in it runs.
"""
import ast
import json
import pathlib
import sys


def listed_text(plan, ranks):
    for instruction in sum(ranks, []):
        if instruction.get("knobs") or not instruction["frequency"]:
            sys.exit(f"lists have only clocks and no other knobs, unlike {instruction} (use the plan itself)")
    lines = [f"{[(one['kind'], one['frequency']) for one in rank]},\n" for rank in ranks]
    return "".join(["[\n", *lines, f"]\n# {plan['target']}: {plan['time_s']} s, {plan['energy_j']} J"])


def plan_text(plan, ranks, path):
    lists = ast.literal_eval(pathlib.Path(path).read_text(encoding="utf-8-sig"))
    if [len(rank) for rank in lists] != [len(rank) for rank in ranks]:
        sys.exit(f"{path} does not fit the job of the plan (use a plan of the job that the lists are for)")
    for instruction, entry in zip(sum(ranks, []), (entry for rank in lists for entry in rank)):
        kind, instruction["frequency"] = entry if isinstance(entry, tuple) else (instruction["kind"], entry)
        if kind != instruction["kind"]:
            sys.exit(f"{path} has a {kind} where the plan has {instruction} (use a plan of the same job)")
    return json.dumps(plan | {"target": f"the lists of {path}"})


plan = json.loads(pathlib.Path(sys.argv[1]).read_text())
ranks = [[one for one in rank["instructions"] if "frequency" in one] for rank in plan["pp_ranks"]]
print(plan_text(plan, ranks, sys.argv[2]) if len(sys.argv) > 2 else listed_text(plan, ranks))
