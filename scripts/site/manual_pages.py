"""Makes pages of the manual pages that `perseus help --man` writes.

Only the requests that perseus/cli/man_page.cc writes are known. Any other one is an error, so that no
text is lost.
"""
import html
import re


def _plain(text):
    """Text without roff's escapes."""
    return text.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\")


def _escaped(text):
    """Text that Markdown prints as it stands, but for code between backticks."""
    parts = re.split(r"(`[^`]+`)", _plain(text))
    return "".join(part if part.startswith("`") else
                   re.sub(r"([\\`*_\[\]#|~])", r"\\\1", html.escape(part, quote=False)) for part in parts)


def _title(text):
    text = _plain(text)
    return f"`{text.lower()}`" if text.startswith("PERSEUS ") else text.capitalize()


class _Page:
    def __init__(self, name):
        self.lines = []
        self.name = name
        self.in_code = False
        self.wants_term = False
        self.section = ""

    def add(self, line):
        if self.in_code and line != ".fi":
            self.lines.append(_plain(line))
            return
        request, _, rest = line.partition(" ")
        if not request.startswith(".") or line.startswith("\\&"):
            self.text(line)
        elif request == ".TH":
            self.lines.append(f"# {self.name.replace('-', ' ', 1)}\n")
        elif request in (".SH", ".SS"):
            self.section = _plain(rest)
            if self.section not in ("NAME",):
                self.lines.append(f"\n{'##' if request == '.SH' else '###'} {_title(rest)}\n")
        elif request in (".TP", ".PP"):
            self.wants_term = request == ".TP"
            self.lines.append("")
        elif request == ".B" and not self.wants_term:
            self.lines.append(f"**{_escaped(rest)}**")
        elif request in (".B", ".I", ".BI"):
            self.term(rest.replace('"', "") if request == ".BI" else rest)
        elif request == ".nf":
            self.in_code = True
            self.lines.append("```text")
        elif request == ".fi":
            self.in_code = False
            self.lines.append("```")
        else:
            raise ValueError(f"{self.name}: unknown request {line}")

    def term(self, text):
        self.wants_term = False
        self.lines.append(f"`{_plain(text)}`\n:   ")

    def text(self, line):
        if self.section == "NAME":
            brief = line.split(" \\- ", 1)[-1]
            self.lines.append(f"{_escaped(brief)}.\n")
        elif self.section == "SEE ALSO":
            self.lines.append(_escaped(line))
        elif self.lines and self.lines[-1].endswith(":   "):
            self.lines[-1] += _escaped(line)
        else:
            self.lines.append(_escaped(line))


def pages(directory):
    """The pages by their name: one for each verb, and index.md."""
    found = {}
    for path in sorted(directory.glob("*.1")):
        page = _Page(path.stem)
        for line in path.read_text().splitlines():
            page.add(line)
        text = "\n".join(page.lines)
        text = re.sub(r"\n## See also\n.*", "\n", text, flags=re.DOTALL)
        found["index.md" if path.stem == "perseus" else path.stem.removeprefix("perseus-") + ".md"] = text
    if len(found) < 2:
        raise ValueError(f"{directory}: no manual pages (perseus help --man {directory})")
    verbs = [name.removesuffix(".md") for name in found if name != "index.md"]
    found = {name: re.sub(r"\bdocs/(\w+)\.md\b", r"[docs/\1.md](../../\1.md)", text) for name, text in found.items()}
    found["index.md"] = found["index.md"].replace("# perseus\n", "# Commands\n", 1) + "\n## Verbs\n\n" + "".join(
        f"- [`perseus {verb}`]({verb}.md)\n" for verb in verbs)
    return found
