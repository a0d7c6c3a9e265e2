#!/usr/bin/env python3
"""Leases a GPU and holds it until it is killed.

  hold_gpu.py SOCKET GPU
"""
import json
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
    agent.connect(sys.argv[1])
    wanted = {"gpus": [sys.argv[2]], "job": "left over", "heartbeat_s": 3600}
    agent.send(json.dumps({"perseus": 1, "acquire": wanted}).encode())
    print("held" if "lease" in json.loads(agent.recv(65536)) else "refused", flush=True)
    signal.pause()
