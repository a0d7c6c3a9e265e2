"""The table "What works" of docs/frameworks.md, from the records of the tests that passed.

    tests/frameworks/table.py RESULTS          prints the table
    tests/frameworks/table.py RESULTS --write  puts it into the document
    tests/frameworks/table.py RESULTS --check  compares it with the document

RESULTS is the directory of the records (works.py): build/release/frameworks. A row is what a test says
that works, @works(package, feature). The order of the rows is that of the tests in their files.

--write refuses a row whose test left no record. For --check, tests may have been left out: then a row
without a record is compared with the versions of scripts/frameworks.txt and trackers.txt, and a line
says how many.
"""

import ast
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCUMENT = ROOT / "docs" / "frameworks.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
FILES = ("torch_test", "torch_closed_loop_test", "torch_behavior_test", "torch_steps_test",
         "torch_in_the_way_test", "torch_ranks_test", "torch_training_test",
         "training_closed_loop_test", "pace_closed_loop_test", "torchtitan_test", "hook_test", "nemo_test", "deepspeed_test",
         "deepspeed_robust_test", "megatron_test", "megatron_robust_test",
         "frameworks_closed_loop_test", "zeus_test", "real_scripts_test",
         "trackers_test")  # fmt: skip
PACKAGES = ("torch", "nemo_automodel", "deepspeed", "megatron-core", "zeus", "transformers",
            "accelerate", "lightning", "wandb", "tensorboard", "mlflow-skinny")  # fmt: skip
PINS = ("frameworks.txt", "trackers.txt")


def claims():
    """(package, feature, test) of each decorator @works, in the order of the files."""
    found = []
    for name in FILES:
        for cls in ast.parse((HERE / f"{name}.py").read_text()).body:
            for method in getattr(cls, "body", []) if isinstance(cls, ast.ClassDef) else []:
                for call in getattr(method, "decorator_list", []):
                    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "works":
                        package, feature = (ast.literal_eval(each) for each in call.args)
                        found.append((package, feature, f"{name}.{cls.name}.{method.name}"))
    return sorted(found, key=lambda row: PACKAGES.index(row[0]))


def pinned_versions():
    pins = "".join((ROOT / "scripts" / name).read_text() for name in PINS)
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", pins, re.MULTILINE))


def table(results):
    """The table, and the tests that left no record of what they say."""
    lines, missing = ["| framework | version | what works | test |", "|---|---|---|---|"], []
    for package, feature, test in claims():
        version = pinned_versions()[package]
        file = results / f"{test}.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        if (found.get("package"), found.get("feature")) == (package, feature):
            version = found["version"]
        else:
            missing.append(test)
        lines.append(f"| {package} | {version} | {feature} | `{test.split('.')[2]}` |")
    return "\n".join(lines) + "\n", missing


def say(*text):
    print("table.py:", *text, file=sys.stderr)


def main():
    results = pathlib.Path(sys.argv[1])
    rows, missing = table(results)
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if "--check" in sys.argv:
        if missing:
            say(f"{len(missing)} rows without a record in {results}, so by the pinned versions only")
        if text[begin:end] == rows:
            return 0
        say(f"the table of {DOCUMENT.name} differs (run the tests, then table.py {results} --write)")
        return 1
    if "--write" in sys.argv:
        if missing:
            say(f"these tests left no record in {results}, run them first: {', '.join(missing)}")
            return 1
        DOCUMENT.write_text(text[:begin] + rows + text[end:])
        return 0
    print(rows, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
