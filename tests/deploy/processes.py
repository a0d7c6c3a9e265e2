"""Programs that run during a test, and a PostgreSQL server."""
import contextlib
import glob
import os
import pathlib
import pwd
import re
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60


class Processes:
    """with Processes() as processes: files are in processes.scratch, the log of NAME in NAME.log there."""

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self.scratch = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._running = {}
        return self

    def __exit__(self, kind, error, trace):
        for process in reversed(self._running.values()):
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        if kind is not None:
            for log in self.scratch.glob("*.log"):
                print(f"--- {log.name}", *log.read_text().splitlines()[-8:], sep="\n", file=sys.stderr)
        self._stack.close()

    def start(self, name, command, **environment):
        with open(self.scratch / f"{name}.log", "a", encoding="utf-8") as log:
            self._running[name] = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, cwd=self.scratch,
                env={**os.environ, **environment})

    def kill(self, name):
        self._running[name].kill()
        self._running.pop(name).wait()

    def end(self, *names):
        """Asks the programs to end, and waits until they have."""
        for name in names:
            self._running[name].terminate()
            self._running.pop(name).wait(PATIENCE_S)

    def pid(self, name):
        return self._running[name].pid

    def port_of(self, name):
        """The port that a server with port 0 listens on."""
        log = self.scratch / f"{name}.log"
        return int(self.soon(lambda: re.search(r"listening on \S*:(\d+)$", log.read_text(), re.M),
                             f"{name} listens")[1])

    def soon(self, condition, what, patience_s=PATIENCE_S):
        """Waits until the condition gives a true value, and returns it. Fails if a program ends with an error."""
        for _ in range(patience_s * 10):
            with contextlib.suppress(subprocess.CalledProcessError, OSError, LookupError):
                if value := condition():
                    return value
            for name, process in self._running.items():
                if process.poll():
                    raise AssertionError(f"{name} ended with {process.returncode}")
            time.sleep(0.1)
        raise AssertionError(f"this did not happen within {patience_s} s: {what}")

    def start_postgres(self):
        """Starts a PostgreSQL server in the scratch directory and returns the address of its database."""
        programs = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4]))
        directory = self.scratch / "postgres"
        directory.mkdir()
        as_user = ["env", "-C", "/"]
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            user = pwd.getpwnam("postgres")
            os.chmod(self.scratch, 0o755)
            os.chown(directory, user.pw_uid, user.pw_gid)
            as_user += ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        subprocess.run([*as_user, f"{programs}/initdb", "-D", directory / "data", "-A", "trust", "-U",
                        "perseus", "--no-sync"], check=True, stdout=subprocess.DEVNULL)
        self.start("postgres", [*as_user, f"{programs}/postgres", "-D", directory / "data", "-k",
                                directory, "-c", "listen_addresses=", "-c", "fsync=off"])
        self.soon(lambda: subprocess.run([f"{programs}/pg_isready", "-q", "-U", "perseus", "-h",
                                          directory],
                                         check=True), "PostgreSQL answers")
        return f"postgresql://perseus@/postgres?host={directory}"
