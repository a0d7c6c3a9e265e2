#!/usr/bin/env python3
"""A program that was compiled with the header of an earlier version works with this library.

  abi.py CC HEADER LIBRARY VERSION_DIRECTORY

VERSION_DIRECTORY has `perseus.h` and `loop.c` of the earlier version (upgrade.py records them). Checked:
  - each function that the earlier header declares is in the library, with its symbol version;
  - each constant has its value, and each member of a structure its place and size. A structure may grow at
    its end, because a caller says its size;
  - the earlier program, compiled with the earlier header, runs with this library.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def parsed(header):
    """The functions, the constants and the members of structures, by name."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    functions = re.findall(r"PERSEUS_API[^;(]*?\b(perseus_\w+)\(", text)
    constants = re.findall(r"^\s*(PERSEUS_\w+) = ", text, re.M) + \
        re.findall(r"^#define (PERSEUS_\w+) \w+$", text, re.M)
    members = [(name, member) for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL)
               for member in re.findall(r"\b(\w+);", body)]
    return functions, constants, members


def printed(cc, header, constants, members, scratch):
    """What the compiler says about them with this header."""
    lines = [f'printf("{name} = %lld\\n", (long long)({name}));' for name in constants]
    lines += [f'printf("{struct}.{member}: %zu bytes at %zu\\n", sizeof(((struct {struct}*)0)->{member}), '
              f'offsetof(struct {struct}, {member}));' for struct, member in members]
    source = scratch / "layout.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include \"perseus.h\"\n"
                      "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run([cc, f"-I{header.parent}", source, "-o", scratch / "layout"], check=True)
    return subprocess.run([scratch / "layout"], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    cc, header, library, recorded = sys.argv[1], *(pathlib.Path(path).absolute() for path in sys.argv[2:])
    functions, constants, members = parsed(recorded / "perseus.h")
    if len(functions) < 10 or len(constants) < 5 or len(members) < 20:
        sys.exit(f"{recorded}/perseus.h: the test does not understand this header")
    symbols = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True,
                             capture_output=True, text=True).stdout
    missing = [name for name in functions if f" T {name}@@PERSEUS_1\n" not in symbols]
    if missing:
        sys.exit(f"the library lacks {missing}, which {recorded.name} has")
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        before = printed(cc, recorded / "perseus.h", constants, members, scratch)
        now = printed(cc, header, constants, members, scratch)
        changed = [f"{old}; now {new}" for old, new in zip(before, now) if old != new]
        if changed:
            sys.exit(f"the ABI differs from {recorded.name}: " + "\n".join(changed))
        subprocess.run([cc, f"-I{recorded}", recorded / "loop.c", "-o", scratch / "loop", library,
                        f"-Wl,-rpath,{library.parent}"], check=True)
        subprocess.run([scratch / "loop", "0"], check=True, cwd=scratch, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, PERSEUS_AGENT="off", PERSEUS_DEVICES="off"))
    print(f"{recorded.name}: {len(functions)} functions, {len(constants)} constants, {len(members)} members")


main()
