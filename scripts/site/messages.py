"""The page of all error messages, from the calls of Fail and FailAs in the sources. Each message has its
remedy in parentheses at its end, so the page cannot become outdated.
"""
import collections
import pathlib
import re

CALL = re.compile(r'\bFail(As)?\(\s*(?:(?:perseus::)?ErrorKind::k(\w+)\s*,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
STATUS = {"System": "1", "Input": "2", "Unreachable": "3"}
# What readers look for, and the modules that say it.
AREAS = [
    ("Profiles", ["planning/profile", "simulation/synthetic", "planning/partition"]),
    ("Jobs and schedules", ["planning/schedule", "planning/job", "planning/schedule_search", "planning/few_switches"]),
    ("Plans and reports", ["planning"]),
    ("Emulation and replay", ["simulation/emulator", "simulation/baselines", "simulation/replay"]),
    ("The agent and GPUs", ["runtime/agent", "runtime/device", "runtime/node_devices", "runtime/protocol",
                            "runtime/qualifier", "simulation/virtual_gpu"]),
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
        for _, kind, literals in CALL.findall(path.read_text()):
            text = "".join(LITERAL.findall(literals)).replace('\\"', '"').replace("\\\\", "\\")
            text = re.sub(r"\{[^{}]*\}", "…", text).replace("{{", "{").replace("}}", "}")
            found.append((module, STATUS[kind or "Input"], *_split(text)))
    return found


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
             "for what varies, and the place in the input in front of a message is left out. [Error",
             "messages](errors.md) explains the most frequent ones. To find a message, search this page for",
             "some of its words that do not vary.", ""]
    for area, _ in AREAS:
        lines += [f"## {area}", "", "| Message | Remedy | Exit status |", "|---|---|---|"]
        for message, remedy, status in sorted(rows[area], key=lambda row: row[0].lstrip("…\" ").lower()):
            lines.append(f"| {_cell(message)} | {_cell(remedy)} | {status} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text):
    for letter in "\\`*_[]<>|{}#~$":
        text = text.replace(letter, {"<": "&lt;", ">": "&gt;", "|": "&#124;"}.get(letter, "\\" + letter))
    return text


if __name__ == "__main__":
    print(page(pathlib.Path(__file__).resolve().parents[2]))
