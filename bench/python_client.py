#!/usr/bin/env python3
"""Measures what a hook around an instruction costs in Python, compared with other ways to report one.

    PYTHONPATH=build/release/python bench/python_client.py [--json]

Each way reports the begin and the end of thousands of instructions, in steps of 96 instructions. The
ways take turns in each round. The result of a way is its median round. A call is half of a pair.

In a training process, the caches hold the data of the computation and not the hook. So `cold` is
the same measurement with a copy of 32 MB before each pair. Most of this time is cache misses, which
do not depend on the hook.

    empty       a `with` of a context manager that does nothing, in Python: the least that such a hook costs
    perseus     with perseus.instruction(...): no agent, nothing recorded
    recorded    the same, writing a job directory
    begin/end   perseus.instruction_begin(), perseus.instruction_end()
    queue       queue.Queue.put() to a thread that takes them
    http        a POST to a server on this machine, one connection kept open
"""

import argparse
import http.client
import http.server
import json
import os
import queue
import statistics
import tempfile
import threading
import time

import perseus

INSTRUCTIONS = 96  # In each step.
ROUNDS = 15
COLD_PAIRS = 101
CACHES = bytes(32 << 20)


class Empty:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


def empty(count):
    for _ in range(count):
        with Empty():
            pass


def with_perseus(session):
    def run(count):
        for _ in range(count // INSTRUCTIONS):
            with session.step():
                for microbatch in range(INSTRUCTIONS):
                    with session.instruction("forward", microbatch=microbatch):
                        pass

    return run


def begin_end(session):
    def run(count):
        for _ in range(count // INSTRUCTIONS):
            session.step_begin()
            for microbatch in range(INSTRUCTIONS):
                session.instruction_begin("forward", microbatch)
                session.instruction_end()
            session.step_end()

    return run


def with_queue():
    messages = queue.Queue()

    def take():
        while messages.get() is not None:
            pass

    threading.Thread(target=take, daemon=True).start()

    def run(count):
        for microbatch in range(count):
            messages.put(("begin", "forward", microbatch))
            messages.put(("end", "forward", microbatch))

    return run


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def with_http():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = http.client.HTTPConnection(*server.server_address)

    def post(event, microbatch):
        body = json.dumps({"event": event, "kind": "forward", "microbatch": microbatch})
        connection.request("POST", "/instruction", body)
        connection.getresponse().read()

    def run(count):
        for microbatch in range(count):
            post("begin", microbatch)
            post("end", microbatch)

    return run


def cold(run):
    """Microseconds a call, of a pair on its own."""
    times = []
    for _ in range(COLD_PAIRS):
        bytearray(CACHES)  # Makes a copy and frees it.
        began = time.perf_counter()
        run(1)
        times.append((time.perf_counter() - began) / 2 * 1e6)
    return statistics.median(times)


def cold_instruction(session):
    def run(count):
        with session.instruction("forward", microbatch=0):
            pass

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        alone = dict(agent="off", devices="off")
        plain = perseus.open(**alone)
        recorded = perseus.open(**alone, job_directory=directory)
        with open(os.path.join(directory, "assignment.json"), "w") as file:
            file.write('{"perseus_assignment": 1, "version": 1, "from_step": 0, "record": true}')
        time.sleep(1)  # The session reads the assignment in this time.
        ways = {
            "empty": (empty, 9600),
            "perseus": (with_perseus(plain), 9600),
            "recorded": (with_perseus(recorded), 960),
            "begin/end": (begin_end(plain), 9600),
            "queue": (with_queue(), 9600),
            "http": (with_http(), 192),
        }
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (run, count) in ways.items():
                began = time.perf_counter()
                run(count)
                times[name].append((time.perf_counter() - began) / count / 2 * 1e6)
        calls = {name: statistics.median(rounds) for name, rounds in times.items()}
        with plain.step():
            cold_calls = {
                name: cold(run)
                for name, run in {
                    "empty": empty,
                    "perseus": cold_instruction(plain),
                    "queue": with_queue(),
                    "http": with_http(),
                }.items()
            }
        plain.close()
        recorded.close()
    if flags.json:
        print(json.dumps({"microseconds_a_call": calls, "cold": cold_calls, "load": os.getloadavg()[0]}))
        return
    print(f"{'':12}us a call   times perseus        cold   (load: {os.getloadavg()[0]:.1f})")
    for name, call in calls.items():
        print(
            f"{name:12}{call:9.3f}   {call / calls['perseus']:13.2f}"
            + (f"   {cold_calls[name]:9.2f}" if name in cold_calls else "")
        )


if __name__ == "__main__":
    main()
