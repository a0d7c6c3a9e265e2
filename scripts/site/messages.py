"""The page of all error messages, from the calls of Fail and FailAs in the sources. Each message has its
remedy in parentheses at its end, so the page cannot become outdated. Where the operating system names the
cause, perseus/base/system_cause.cc has the remedy, and the page has that table.
"""
import collections
import errno
import os
import pathlib
import re

CALL = re.compile(r'\bFail(As)?\(\s*(?:(?:perseus::)?ErrorKind::k(\w+)\s*,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# A remedy among the arguments: one that is left out if the cause brings its own.
ARGUMENT = re.compile(r'" \(((?:[^"\\]|\\.)*)\)"')
CAUSE = re.compile(r'case (E\w+):\s*(?:return "([^"]*)";)?')
OTHER_CAUSE = re.compile(r'default:\s*return "([^"]*)";')
SYSTEM = "that of [the cause](#causes-that-the-operating-system-names)"
STATUS = {"System": "1", "Input": "2", "File": "2", "Unreachable": "3"}
# What readers look for, and the modules that say it.
AREAS = [
    ("Profiles", ["planning/profile", "simulation/synthetic", "planning/partition"]),
    ("Jobs and schedules", ["planning/schedule", "planning/job", "planning/schedule_search", "planning/few_switches"]),
    ("Plans and reports", ["planning"]),
    ("Emulation and replay", ["simulation/emulator", "simulation/baselines", "simulation/replay"]),
    ("The agent and GPUs", ["runtime/agent", "runtime/device", "runtime/protocol",
                            "runtime/cuda", "runtime/qualifier", "simulation/virtual_gpu"]),
    ("Training processes, tune and verify", ["runtime", "simulation/trainer"]),
    ("The server and nodes", ["cluster"]),
    ("Commands", ["cli"]),
    ("Files and texts", ["base"]),
]


def messages(sources):
    """(module, exit status, message, remedy) of each call. `…` stands for what varies."""
    found = []
    for path in sorted((sources / "perseus").rglob("*.cc")) + sorted((sources / "perseus").rglob("*.h")):
        if path.name.endswith("_test.cc") or "test" in path.stem.split("_"):
            continue
        module = path.parent.relative_to(sources / "perseus").as_posix()
        source = path.read_text()
        for call in CALL.finditer(source):
            _, kind, literals = call.groups()
            text = "".join(LITERAL.findall(literals)).replace('\\"', '"').replace("\\\\", "\\")
            text = re.sub(r"\{[^{}]*\}", "…", text).replace("{{", "{").replace("}}", "}")
            message, remedy = _split(text)
            arguments = _rest_of_call(source, call.end())
            if not remedy and "CauseAndRemedy(" in arguments:
                remedy = SYSTEM
            elif not remedy and (given := ARGUMENT.search(arguments)):
                remedy = given[1]
            # A message without words of its own is a part of a longer one.
            if message.strip("…: ") and not remedy and re.search(r"std::strerror\(|\.message\(", arguments):
                raise SystemExit(f"{path}: {text!r} has no remedy for its cause (use CauseAndRemedy)")
            found.append((module, STATUS[kind or "Input"], message, remedy))
    return found


def system_causes(sources):
    """(cause, remedy) of each error number that the table knows, and the remedy of all others."""
    table = (sources / "perseus/base/system_cause.cc").read_text()
    causes, waiting = [], []
    for name, remedy in CAUSE.findall(table):
        waiting.append(os.strerror(getattr(errno, name)))
        if remedy:
            causes += [(cause, remedy) for cause in waiting]
            waiting = []
    return causes, OTHER_CAUSE.search(table)[1]


def _rest_of_call(source, start):
    """The text from `start` to the parenthesis that ends the call."""
    depth, i = 1, start
    while depth:
        if literal := LITERAL.match(source, i):
            i = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(source[i], 0)
        i += 1
    return source[start:i]


def _split(text):
    """The message, and the remedy in parentheses at its end, or nothing."""
    if not text.endswith(")"):
        return text, ""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[i], 0)
        if depth == 0:
            return text[:i].strip(), text[i + 1:-1]
    return text, ""


def _area(module):
    fits = [(len(prefix), area) for area, prefixes in AREAS for prefix in prefixes
            if module == prefix or module.startswith(prefix + "/")]
    return max(fits)[1]


def page(sources):
    rows = collections.defaultdict(set)
    for module, status, message, remedy in messages(sources):
        # A message without a remedy is a part of a longer one, which has it.
        if remedy:
            rows[_area(module)].add((re.sub(r"^(…: )+", "", message), remedy, status))
    lines = ["# All error messages", "",
             "This page lists the messages that say what to do, from the sources of this version. `…` stands",
             "for what varies, and the place in the input in front of a message is left out. A name between",
             "backticks is a key, such as that of the job file: the program shows its flag, and Python its",
             "argument. [Error messages](errors.md) explains the most frequent messages. To find one, search",
             "this page for some of its words that do not vary.", ""]
    for area, _ in AREAS:
        lines += [f"## {area}", "", "| Message | Remedy | Exit status |", "|---|---|---|"]
        for message, remedy, status in sorted(rows[area], key=lambda row: row[0].lstrip("…\" ").lower()):
            cell = remedy if remedy == SYSTEM else _cell(remedy)
            lines.append(f"| {_cell(message)} | {cell} | {status} |")
        lines.append("")
    causes, other = system_causes(sources)
    lines += ["## Causes that the operating system names", "", "| Cause | Remedy |", "|---|---|"]
    lines += [f"| {_cell(cause)} | {_cell(remedy)} |" for cause, remedy in causes]
    lines += [f"| any other | {_cell(other)} |", ""]
    return "\n".join(lines)


def _cell(text):
    for letter in "\\`*_[]<>|{}#~$":
        text = text.replace(letter, {"<": "&lt;", ">": "&gt;", "|": "&#124;"}.get(letter, "\\" + letter))
    return text


if __name__ == "__main__":
    print(page(pathlib.Path(__file__).resolve().parents[2]))
