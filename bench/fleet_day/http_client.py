"""A small HTTP/1.1 client for thousands of connections in one asyncio loop.

It has asyncio.timeout, and not asyncio.wait_for, which loses a cancellation that comes together with
the awaited result (Python 3.11). A task that lost its cancellation goes on forever.
"""
import asyncio
import json


class Lost(Exception):
    """The connection ended before the answer: whether the request had an effect is unknown."""


class Connection:
    """One connection at a time, to one of several replicas. A lost one is opened again."""

    def __init__(self, replicas, first):
        self._replicas = replicas  # Of (host, port); a replica that restarts keeps its port.
        self._next = first
        self._reader = self._writer = None
        self._reply = None       # A future, while a request waits for its answer among events.
        self.takes_requests = False  # Whether events() runs on a connection that takes requests.

    async def _open(self):
        for _ in range(2 * len(self._replicas)):
            host, port = self._replicas[self._next % len(self._replicas)]
            try:
                self._reader, self._writer = await asyncio.open_connection(host, port, limit=1 << 24)
                return
            except OSError:
                self._next += 1
        raise ConnectionRefusedError("no replica accepts connections")

    def close(self):
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None

    async def _send(self, method, target, token, body, fields):
        is_new = self._writer is None
        if is_new:
            await self._open()
        head = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
        if token:
            head.append(f"Authorization: Bearer {token}")
        head += [f"{name}: {value}" for name, value in fields.items()]
        if body:
            head.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        await self._writer.drain()

    async def _read_head(self):
        line = await self._reader.readline()
        if not line:
            raise Lost("closed")
        status, fields = int(line.split()[1]), {}
        while (line := (await self._reader.readline()).strip()):
            name, value = line.decode().split(":", 1)
            fields[name.lower()] = value.strip()
        return status, fields

    async def ask(self, method, target, token="", body=b"", **fields):
        """(status, body). Raises Lost."""
        if isinstance(body, dict):
            body, fields = json.dumps(body).encode(), {"Content-Type": "application/json", **fields}
        if self.takes_requests:
            return await self._ask_among_events(method, target, token, body, fields)
        try:
            async with asyncio.timeout(60):
                await self._send(method, target, token, body, fields)
                status, answer = await self._read_head()
                text = await self._reader.readexactly(int(answer.get("content-length", 0)))
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, Lost) as error:
            self.close()
            self._next += 1
            if isinstance(error, ConnectionRefusedError):
                raise
            raise Lost(repr(error)) from error
        if answer.get("connection", "").lower() == "close":
            self.close()
        return status, text

    async def _ask_among_events(self, method, target, token, body, fields):
        self._reply = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(60):
                await self._send(method, target, token, body, fields)
                return await self._reply
        except (OSError, asyncio.TimeoutError) as error:
            self.close()
            raise Lost(repr(error)) from error
        finally:
            self._reply = None

    async def _take_reply(self, reader, line):
        status, length = int(line.split()[1]), 0
        while line := (await reader.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split()[1])
        text = await reader.readexactly(length)
        if self._reply and not self._reply.done():
            self._reply.set_result((status, text))

    async def events(self, target, token, last):
        """Yields (event, id, data) until the stream ends. Raises Lost, or returns the status."""
        try:
            await self._send("GET", target, token, b"", {
                "Connection": "Upgrade", "Upgrade": "perseus-node",
                **({"Last-Event-ID": last} if last else {})})
            async with asyncio.timeout(60):
                status, _ = await self._read_head()
            self.takes_requests = status == 101
            if status not in (101, 200):
                yield "refused", str(status), ""
                return
            event, reader = {}, self._reader
            while True:
                async with asyncio.timeout(15):
                    line = (await reader.readline()).decode()
                if not line:
                    return
                if self.takes_requests and line.startswith("HTTP/1.1 "):
                    async with asyncio.timeout(15):
                        await self._take_reply(reader, line)
                    continue
                line = line.rstrip("\r\n")
                if ":" in line and not line.startswith(":"):
                    name, value = line.split(":", 1)
                    event[name] = value.strip()
                elif not line and event:
                    if "data" in event:
                        yield event.get("event", ""), event.get("id", ""), event["data"]
                    event = {}
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, Lost) as error:
            raise Lost(repr(error)) from error
        finally:
            self.takes_requests = False
            self.close()
            self._next += 1
            if self._reply and not self._reply.done():
                self._reply.set_exception(Lost("closed"))
