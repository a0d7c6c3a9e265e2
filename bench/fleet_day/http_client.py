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

    async def events(self, target, token, last):
        """Yields (event, id, data) until the stream ends. Raises Lost, or returns the status."""
        try:
            await self._send("GET", target, token, b"", {"Last-Event-ID": last} if last else {})
            async with asyncio.timeout(60):
                status, _ = await self._read_head()
            if status != 200:
                yield "refused", str(status), ""
                return
            event = {}
            while True:
                async with asyncio.timeout(15):
                    line = (await self._reader.readline()).decode()
                if not line:
                    return
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
            self.close()
            self._next += 1
