"""Renders a chart as `helm template` does. Supports only values, the release's name and namespace, toJson,
blocks that depend on one value, loops over a value, and files; other expressions raise SyntaxError."""
import json
import re

import yaml


class Chart:
    def __init__(self, directory, name, namespace, **values):
        self._directory = directory
        self._templates = sorted((directory / "templates").glob("*.yaml"))
        self._values = yaml.safe_load((directory / "values.yaml").read_text())
        for path, value in values.items():
            *parents, last = path.split("__")
            self._look_up(parents)[last] = value
        self._release = {"Name": name, "Namespace": namespace}
        self.used = set()

    def _look_up(self, path):
        value = self._values
        for key in path:
            value = value[key]  # KeyError: a template uses a value that does not exist.
        return value

    def unused(self):
        """The paths of the values that no template uses."""
        def leaves(value, path):
            if ".".join(path) in self.used:
                return
            if not isinstance(value, dict):
                yield ".".join(path)
                return
            for key, inner in value.items():
                yield from leaves(inner, [*path, key])
        return list(leaves(self._values, []))

    def _value(self, expression, variables):
        if match := re.fullmatch(r"(toJson )?\$(\w+)", expression):
            value = variables[match[2]]
            return json.dumps(value) if match[1] else str(value)
        match = re.fullmatch(r"(toJson )?\.(Values|Release)\.([\w.]+)", expression)
        if not match:
            raise SyntaxError(f"{{{{ {expression} }}}} is not supported")
        if match[2] == "Release":
            return self._release[match[3]]
        value = self._value_of(match[3])
        if match[1]:
            return json.dumps(value)
        if isinstance(value, (dict, list)):
            raise SyntaxError(f"{expression} is not a single value; use toJson")
        return str(value)

    def _value_of(self, path):
        self.used.add(path)
        return self._look_up(path.split("."))

    def _rendered(self, lines, variables):
        """The lines up to the end of the block. `lines` is an iterator, so blocks may contain blocks."""
        made = []
        for line in lines:
            if re.fullmatch(r"\s*\{\{- end \}\}", line):
                return made
            if block := re.fullmatch(r"\s*\{\{- if \.Values\.([\w.]+) \}\}", line):
                inner = self._rendered(lines, variables)
                made += inner if self._value_of(block[1]) else []
            elif block := re.fullmatch(r"\s*\{\{- range \$(\w+), \$(\w+) := \.Values\.([\w.]+) \}\}", line):
                body = list(self._body(lines))
                for key, value in sorted(self._value_of(block[3]).items()):
                    made += self._rendered(iter(body), {**variables, block[1]: key, block[2]: value})
            elif file := re.fullmatch(r'\s*\{\{- \.Files\.Get "([\w.]+)" \| nindent (\d+) \}\}', line):
                made += [" " * int(file[2]) + text for text in (self._directory / file[1]).read_text().splitlines()]
            else:
                made.append(re.sub(r"\{\{ (.+?) \}\}", lambda m: self._value(m[1], variables), line))
        return made

    @staticmethod
    def _body(lines):
        """The lines of a block that contains no other block."""
        for line in lines:
            if re.fullmatch(r"\s*\{\{- end \}\}", line):
                return
            yield line

    def objects(self):
        for template in self._templates:
            lines = self._rendered(iter(template.read_text().splitlines()), {})
            yield from filter(None, yaml.safe_load_all("\n".join(lines)))
