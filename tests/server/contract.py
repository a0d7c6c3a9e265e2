"""The parts of check_contract: the contract, the server, and the checks of one against the other."""
import datetime
import http.client
import json
import re
import subprocess
import sys
import time
import urllib.parse

import jsonschema
import yaml

PATIENCE_S = 60
NOTHING = object()  # Means that the key of this value is left out.
WRONG = [NOTHING, None, True, -1, 1.5, 1e300, "", "\0", "no such", [], {}, [[]]]
# Numbers near some upper limits. The contract says which fields have these limits.
LARGE = [4_096, 70_000, 200_000, 500_000, 2_000_000, 10**16]
# The valid values of these fields depend on the job or on another field, as the descriptions say.
NOT_ALONE = {"job", "scope", "pp_ranks", "chunks", "microbatches", "csv", "kind", "chunk", "rank",
             "tp_rank", "dp_rank", "pp_rank", "clocks_mhz", "starts_in", "expires_in", "ready"}
NO_JSON = [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"key": 1, "key": 2}', b"[" * 100_000,
           b'{"\\ud800": 1}', b'{"key": [[[[[[[]]]]]]]}']


def require(condition, *what):
    if not condition:
        sys.exit("check_contract: " + " ".join(str(part) for part in what))


class Contract:
    def __init__(self, text):
        self.document = yaml.safe_load(text)
        for schema in self.document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)
        self.resolver = jsonschema.RefResolver("", self.document)
        self.formats = jsonschema.FormatChecker(formats=[])
        self.formats.checks("date-time", ValueError)(
            lambda text: datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ"))
        # ("GET", "/v1/jobs/{job}") -> success statuses of the contract that have not occurred yet.
        self.missing = {}
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                if method == "parameters":
                    continue
                self.missing[method.upper(), path] = {
                    status for status in operation["responses"] if status[0] == "2"}

    def deref(self, value):
        while "$ref" in value:
            value = self.resolver.resolve(value["$ref"])[1]
        return value

    def operation(self, method, path):
        return self.document["paths"][path][method.lower()]

    def body_schema(self, method, path):
        content = self.operation(method, path).get("requestBody", {}).get("content", {})
        return content.get("application/json", {}).get("schema")

    def faults(self, schema, value):
        validator = jsonschema.Draft202012Validator(
            schema, resolver=self.resolver, format_checker=self.formats)
        return sorted(validator.iter_errors(value), key=lambda error: list(error.path))

    def check(self, method, path, answer):
        """Requires that the contract allows this response."""
        responses = self.operation(method, path)["responses"]
        what = (method, path, answer.status, answer.text[:600])
        require(answer.status < 500, "a server error for a client's request:", *what)
        require(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", answer.fields["traceresponse"] or ""),
                "no trace identifier:", *what)
        require((answer.status == 401) == (answer.fields["www-authenticate"] == "Bearer"), *what)
        key = str(answer.status)
        if answer.status < 400:
            require(key in responses, "a status that is not in the contract:", *what)
            self.missing[method, path].discard(key)
        response = self.deref(responses.get(key, responses["default"]))
        require(answer.media in response["content"], "media type", answer.media, *what)
        schema = response["content"][answer.media]["schema"]
        if answer.media.endswith("json"):
            for fault in self.faults(schema, answer.json()):
                require(False, "/".join(map(str, fault.absolute_path)), fault.message, *what)
        if answer.status >= 400:
            require(answer.media == "application/problem+json", "no problem document:", *what)
            require(answer.json()["status"] == answer.status, "the problem document has another status:", *what)
            require("remedy" in answer.json(), "no remedy:", *what)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.media = (response.getheader("content-type") or "").split(";")[0]
        self.fields = response.headers
        self.text = response.read().decode()

    def json(self):
        return json.loads(self.text)


class Server:
    def __init__(self, perseus, directory):
        self.process = subprocess.Popen(
            [perseus, "serve", "--listen", "127.0.0.1:0", "--rate", "0", "--database",
             f"sqlite:{directory}/perseus.db"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.port = None
        self.token = None
        for line in self.process.stdout:
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        require(self.port, "the server did not start")
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def fields(self):
        return {"Authorization": "Bearer " + self.token} if self.token else {}

    def send(self, method, target, body=None, fields=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        elif isinstance(body, str):
            body = body.encode()
        try:
            self.connection.request(method, target, body, {**self.fields(), **(fields or {})})
            return Answer(self.connection.getresponse())
        except (http.client.HTTPException, ConnectionError) as error:
            require(False, method, target, "got no response:", error)

    def end(self):
        self.connection.close()
        self.process.terminate()
        require(self.process.wait(PATIENCE_S) == 0, "the server ended with", self.process.returncode)


def mutated(value, path=()):
    """Yields bodies that differ from `value` in one place, each with that place."""
    if isinstance(value, dict):
        yield {**value, "surplus": 1}, (*path, "surplus")
        for key, member in value.items():
            for wrong in WRONG + LARGE:
                changed = {**value, key: wrong}
                if wrong is NOTHING:
                    del changed[key]
                yield changed, (*path, key)
            for changed, place in mutated(member, (*path, key)):
                yield {**value, key: changed}, place
    elif isinstance(value, list) and value:
        for wrong in WRONG[1:] + LARGE:
            yield [wrong, *value[1:]], (*path, 0)
        for changed, place in mutated(value[0], (*path, 0)):
            yield [changed, *value[1:]], place


class Check:
    def __init__(self, contract, server):
        self.contract = contract
        self.server = server
        self.count = 0

    def call(self, method, path, status, query="", body=None, fields=None, **named):
        """Sends a request and checks the response. `named` fills the placeholders of the path."""
        place = re.sub(r"\{(\w+)\}", lambda found: urllib.parse.quote(named[found[1]], safe=""), path)
        answer = self.server.send(method, place + query, body, fields)
        self.count += 1
        self.contract.check(method, path, answer)
        wanted = status if isinstance(status, tuple) else (status,)
        require(answer.status in wanted, method, place, query, body, "returns", answer.status,
                answer.text)
        schema = self.contract.body_schema(method, path)
        if answer.status < 300 and schema is not None and isinstance(body, dict):
            for fault in self.contract.faults(schema, body):
                require(False, method, path, "accepts a body that the contract forbids:", fault.message, body)
        return answer

    def refuse_all(self, method, path, good, **named):
        """Sends bodies that the contract forbids, each near the valid body `good`; all must be refused."""
        schema = self.contract.body_schema(method, path)
        require(not self.contract.faults(schema, good), "the contract should allow this:", path, good)
        for body in NO_JSON:
            self.call(method, path, (400, 422), body=body, **named)
        for body, place in mutated(good):
            if not self.contract.faults(schema, body):
                continue
            problem = self.call(method, path, (400, 422), body=body, **named).json()
            pointer = problem.get("pointer", "")
            if "surplus" in place:
                require(pointer == "/" + "/".join(map(str, place)), method, path, body, problem)
            elif place:
                require(pointer.startswith("/" + place[0]), method, path, body,
                        "the fault is at", place, "but the problem is", problem)

    def try_all(self, method, path, good, **named):
        """Sends bodies near `good` that the contract allows; none may be a malformed request."""
        for body, place in mutated(good):
            if self.contract.faults(self.contract.body_schema(method, path), body):
                continue
            depends = NOT_ALONE & set(place) or "\\u0000" in json.dumps(body)
            self.call(method, path, (200, 201, 202, 404, 409, 422) + ((400,) if depends else ()),
                      body=body, **named)

    def wait_until(self, path, condition, **named):
        until = time.monotonic() + PATIENCE_S
        while True:
            view = self.call("GET", path, 200, **named).json()
            if condition(view):
                return view
            require(time.monotonic() < until, path, "did not reach the expected state:", view)
            time.sleep(0.02)

    def state(self):
        """All state that a wrongly accepted request could change."""
        jobs = self.call("GET", "/v1/jobs", 200, "?all=1").json()["jobs"]
        views = [self.call("GET", "/v1/jobs/{job}", 200, job=job["id"]).json() for job in jobs]
        for view in views:
            view.get("training", {}).pop("last_step_s_ago", None)
            for node in view["nodes"]:
                del node["seen_s_ago"], node["last_step_s_ago"]
        return views, self.call("GET", "/v1/tokens", 200).json()


class Stream:
    """A node's events."""

    def __init__(self, check, node, instance):
        self.check = check
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", check.server.port, timeout=PATIENCE_S)
        self.connection.request("GET", f"/v1/nodes/{node}/events?instance={instance}")
        self.response = self.connection.getresponse()
        path = "/v1/nodes/{node}/events"
        content = check.contract.operation("GET", path)["responses"]["200"]["content"]
        require(self.response.getheader("content-type").split(";")[0] in content, "wrong media type of the event stream")
        check.contract.missing["GET", path].discard("200")

    def await_event(self, name, schema):
        event = {}
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if line:
                field, _, value = line.partition(": ")
                event[field] = value
                continue
            if event.get("event") == name:
                data = json.loads(event["data"])
                faults = self.check.contract.faults({"$ref": f"#/components/schemas/{schema}"}, data)
                require(not faults, "the event", name, faults, event)
                return data
            event = {}
