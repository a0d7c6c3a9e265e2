"""Hooks of MkDocs. Adds the pages that are made from sources, so that each fact is in one place.

  reference/commands/*   what `perseus help` prints for each verb
  reference/http-api.md  from docs/openapi.yaml
  reference/cpp/*        what Doxygen makes of the public headers
  reference/changelog.md, reference/contributing.md   from the files in the root of the repository
  source/*               every file outside of docs/ to which a page links, so that no link needs a
                         network

Environment: PERSEUS_SITE_PROGRAM and PERSEUS_SITE_CPP (Doxygen's HTML), which scripts/docs sets.
"""
import os
import pathlib
import posixpath
import re
import subprocess
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/site"))
import http_api  # noqa: E402

# The pages of files in the repository's root.
MOVED = {"CHANGELOG.md": "reference/changelog.md", "CONTRIBUTING.md": "reference/contributing.md",
         "README.md": "index.md"}
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".toml": "toml", ".yaml": "yaml",
             ".sh": "bash", ".json": "json", ".csv": "text", ".mjs": "javascript", ".service": "ini"}
QUOTED = re.compile(r'"([^"]*)"')
# Text for the site only: <!-- site:TEXT-->. For example, it links to a page that is made from
# sources. In the repository, such a text is an invisible comment.
SITE_ONLY = re.compile(r"<!-- site:(.*?)-->", re.DOTALL)
LINK = re.compile(r"((?:\[[\w./-]+\.md)?\]\()([^)\s#]*)((?:#[^)\s]*)?\))")


def on_config(config):
    version = re.search(r"^project\(perseus VERSION (\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    config.site_name = f"Perseus {version}"
    return config


def on_files(files, config):
    def add(path, content):
        files.append(File.generated(config, path, content=content))

    commands = _commands()
    for path, text in commands.items():
        add(f"reference/commands/{path}", text)
    _replace_in_nav(config.nav, "reference/commands/",
                    [f"reference/commands/{path}" for path in sorted(commands, key=lambda name: name != "index.md")])
    add("reference/http-api.md", http_api.page(ROOT / "docs/openapi.yaml"))
    cpp = pathlib.Path(os.environ["PERSEUS_SITE_CPP"])
    for path in sorted(cpp.rglob("*")):
        if path.is_file():
            add(f"reference/cpp/{path.relative_to(cpp)}", path.read_bytes())
    for source, page in MOVED.items():
        if page not in files.src_uris:
            add(page, _relink((ROOT / source).read_text(), source, page, files, add))
    # Pages that exist as files. Their links are rewritten when MkDocs reads the pages
    # (on_page_markdown). The files to which they link are added here.
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        _relink(path.read_text(), f"docs/{name}", name, files, add)
    return files


def _replace_in_nav(nav, name, pages):
    """Puts `pages` in the place of `name`."""
    for entry in nav:
        for title, content in entry.items() if isinstance(entry, dict) else ():
            if content == name:
                entry[title] = pages
            elif isinstance(content, list):
                _replace_in_nav(content, name, pages)


def on_page_markdown(markdown, page, config, files):
    path = page.file.abs_src_path
    if path is None:  # A generated page. Its links are already right.
        return markdown
    name = page.file.src_uri
    markdown = markdown.replace("<!-- server metrics -->", _server_metrics())
    markdown = SITE_ONLY.sub(r"\1", markdown)
    return _relink(markdown, f"docs/{name}", name, files, None)


def _commands():
    """Returns the pages by name: the help of each verb and its parts, and index.md with all verbs."""
    def help_of(*words):
        return subprocess.run([os.environ["PERSEUS_SITE_PROGRAM"], "help", *words], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def names(text):
        return re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", text, re.MULTILINE)

    overview = help_of("--all")
    pages = {"index.md": f"# Commands\n\n```text\n{overview}```\n"}
    for verb in names(overview):
        text = help_of(verb)
        pages[f"{verb}.md"] = f"# perseus {verb}\n\n```text\n{text}```\n" + "".join(
            f"\n## perseus {verb} {part}\n\n```text\n{help_of(verb, part)}```\n"
            for part in names(text.partition("\nSubcommands:\n")[2]))
        pages["index.md"] += f"\n- [`perseus {verb}`]({verb}.md)"
    return pages


def _server_metrics():
    """Returns a table of the metrics' names and descriptions in the sources of the server."""
    text = (ROOT / "perseus/cluster/server/server_metrics.cc").read_text()
    rows = re.findall(r'"(perseus_\w+)",\s*((?:"[^"]*"\s*)+)', text)
    if len(rows) < 10:
        raise ValueError("server_metrics.cc: the metrics were not found")
    lines = ["| metric | |", "|---|---|"]
    for name, parts in sorted(rows):
        lines.append(f"| `{name}` | {''.join(re.findall(QUOTED, parts))} |")
    return "\n".join(lines) + "\n"


def _relink(text, source, page, files, add):
    """Changes the links of `source` (a path in the repository), so that they lead to pages of the site.

    With `add`, also makes the pages of files outside of docs/.
    """
    def target(match):
        address = match[2]
        if not address or re.match(r"[a-z]+:", address):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), address))
        there = _page_of(path, files, add)
        if there is None:
            return match[0]  # MkDocs reports the missing page.
        begin = match[1] if match[1] == "](" else f"[{_title_of(path)}]("
        return begin + posixpath.relpath(there, posixpath.dirname(page) or ".") + match[3]

    # Code has no links.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(target, part) for part in parts)


def _title_of(path):
    """Returns the title of a document. To a reader of the site, the file name would mean nothing."""
    for line in (ROOT / path).read_text().splitlines():
        if line.startswith("# "):
            return line[2:]
    return path


def _page_of(path, files, add):
    """Returns the page of a path in the repository, or None."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    file = ROOT / path
    if not file.exists():
        return None
    page = f"source/{path}/index.md" if file.is_dir() else f"source/{path}" + (
        "" if path.endswith(".md") else ".md")
    if add is not None and page not in files.src_uris:
        add(page, "")  # Ends the recursion of files that link to each other.
        files.remove(files.src_uris[page])
        add(page, _source_page(file, path, page, files, add))
    return page


def _source_page(file, path, page, files, add):
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation]\ntitle: {path}\n---\n"
    if file.is_dir():
        entries = sorted(entry for entry in file.iterdir() if not entry.name.startswith((".", "__")))
        lines = [f"- `{entry.name}`" for entry in entries]
        return f"{head}# {path}\n\nThis directory of the sources has:\n\n" + "\n".join(lines) + "\n"
    text = file.read_text()
    if path.endswith(".md"):
        return head + _relink(text, path, page, files, add)
    language = "docker" if file.name == "Dockerfile" else LANGUAGES.get(file.suffix, "text")
    return f"{head}# {path}\n\n~~~~{language}\n{text}~~~~\n"
