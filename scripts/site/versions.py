#!/usr/bin/env python3
"""Writes what lies beside the directories of the versions of the site: versions.html, which lists them,
and index.html, which goes to the newest one.

  versions.py SITE
"""
import pathlib
import re
import sys

site = pathlib.Path(sys.argv[1])
versions = sorted((path.name for path in site.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)),
                  key=lambda name: tuple(map(int, name.split("."))), reverse=True)
links = "".join(f'<li><a href="{name}/index.html">{name}</a></li>' for name in versions)
head = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Perseus</title>
<meta name="viewport" content="width=device-width">
"""
(site / "versions.html").write_text(
    f"{head}<h1>Perseus</h1><p>Documentation, by version:</p><ul>{links}</ul></html>\n")
(site / "index.html").write_text(
    f'{head}<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">\n'
    f'<p><a href="{versions[0]}/index.html">Perseus {versions[0]}</a></p></html>\n')
