"""Renders a chart as `helm template` does. Supports only values, the release's name and namespace, toJson,
and blocks that depend on one value; other expressions raise SyntaxError."""
import json
import re

import yaml


class Chart:
    def __init__(self, directory, name, namespace, **values):
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

    def _value(self, expression):
        match = re.fullmatch(r"(toJson )?\.(Values|Release)\.([\w.]+)", expression)
        if not match:
            raise SyntaxError(f"{{{{ {expression} }}}} is not supported")
        if match[2] == "Release":
            return self._release[match[3]]
        self.used.add(match[3])
        value = self._look_up(match[3].split("."))
        if match[1]:
            return json.dumps(value)
        if isinstance(value, (dict, list)):
            raise SyntaxError(f"{expression} is not a single value; use toJson")
        return str(value)

    def objects(self):
        for template in self._templates:
            lines, is_in = [], True
            for line in template.read_text().splitlines():
                if condition := re.fullmatch(r"\{\{- if \.Values\.([\w.]+) \}\}", line):
                    self.used.add(condition[1])
                    is_in = bool(self._look_up(condition[1].split(".")))
                elif line == "{{- end }}":
                    is_in = True
                elif is_in:
                    lines.append(re.sub(r"\{\{ (.+?) \}\}", lambda m: self._value(m[1]), line))
            yield from filter(None, yaml.safe_load_all("\n".join(lines)))
