"""Makes a page of docs/openapi.yaml: every route with its scopes, parameters, body and answers."""
import yaml


def _cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def _resolve(contract, value):
    while isinstance(value, dict) and "$ref" in value:
        found = contract
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = {**found, **{key: item for key, item in value.items() if key != "$ref"}}
    return value


def _schema_name(schema):
    """Returns a short name of a type, with a link if the type has its own section."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " or ".join(_schema_name(one) for one in schema[key])
    if "allOf" in schema:
        return " with ".join(_schema_name(one) for one in schema["allOf"])
    kind = schema.get("type", "object" if "properties" in schema else "any")
    if isinstance(kind, list):
        kind = " or ".join(kind)
    if kind == "array":
        return f"array of {_schema_name(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]}" for key, sign in
              (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤")) if key in schema]
    return kind + (f" {', '.join(bounds)}" if bounds else "")


def _properties(contract, schema):
    """Returns a table of the properties, or an empty text if there are none."""
    properties = schema.get("properties", {})
    if not properties:
        return ""
    lines = ["", "| key | type | |", "|---|---|---|"]
    for name, item in properties.items():
        mark = "required. " if name in schema.get("required", []) else ""
        text = _resolve(contract, item).get("description", "") if "$ref" not in item else item.get(
            "description", "")
        lines.append(f"| `{name}` | {_cell(_schema_name(item))} | {mark}{_cell(text)} |")
    return "\n".join(lines) + "\n"


def _content(contract, content):
    """Returns the media types of a body or an answer. Adds the properties if they are described here."""
    names, tables = [], ""
    for media, item in content.items():
        schema = item.get("schema", {})
        names.append(f"`{media}`: {_schema_name(schema)}" if schema else f"`{media}`")
        tables += _properties(contract, schema)
    return ", ".join(names), tables


def _operation(contract, method, path, route, operation):
    parts = [f"### `{method.upper()} {path}`\n\n{operation.get('summary', '')}\n"]
    if operation.get("description"):
        parts.append(operation["description"])
    scopes = operation.get("x-scopes", [])
    if scopes:
        parts.append("Scopes: " + ", ".join(f"`{scope}`" for scope in scopes) + ".\n")
    parameters = [_resolve(contract, one) for one in route.get("parameters", []) + operation.get("parameters", [])]
    if parameters:
        rows = "".join(
            f"| `{one['name']}` | {one['in']} | {_cell(_schema_name(one.get('schema', {})))} |"
            f" {_cell(one.get('description', ''))} |\n" for one in parameters)
        parts.append(f"| parameter | in | type | |\n|---|---|---|---|\n{rows}")
    if "requestBody" in operation:
        body, tables = _content(contract, _resolve(contract, operation["requestBody"]).get("content", {}))
        limit = operation.get("x-body-bytes")
        parts.append(f"Body: {body}" + (f", at most {limit:,} bytes" if limit else "") + f".\n{tables}")
    for status, answer in operation.get("responses", {}).items():
        if status == "default":
            continue
        answer = _resolve(contract, answer)
        body, tables = _content(contract, answer.get("content", {}))
        text = " ".join(answer.get("description", "").split())
        parts.append(f"**{status}** {text}" + (f" {body}" if body else "") + f"\n{tables}")
    return "\n".join(parts)


def page(path):
    contract = yaml.safe_load(path.read_text())
    parts = ["# HTTP API\n", contract["info"]["description"],
             "The contract is [openapi.yaml](../openapi.yaml). A test compares a running server with it. "
             "[The control plane](../server.md) explains the concepts, and has the "
             "[limits and errors](../server.md#request-limits-and-errors).\n"]
    for tag in contract["tags"]:
        parts.append(f"## {tag['name'].capitalize()}\n\n{tag.get('description', '')}\n")
        for address, route in contract["paths"].items():
            for method, operation in route.items():
                if method != "parameters" and tag["name"] in operation.get("tags", []):
                    parts.append(_operation(contract, method, address, route, operation))
    parts.append("## Types\n")
    for name, schema in contract["components"]["schemas"].items():
        parts.append(f"### {name}\n\n{schema.get('description', '')}\n")
        table = _properties(contract, schema)
        parts.append(table or f"{_cell(_schema_name(schema))}\n")
    return "\n".join(parts)
