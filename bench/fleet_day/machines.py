"""The processes of the day: PostgreSQL and the replicas, which can be killed and started again."""
import contextlib
import os
import pathlib
import pwd
import re
import signal
import subprocess
import time

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
PATIENCE_S = 60  # For a program that answers.
END_S = 30       # For a program after the signal to end.


def ended(process, signal_number):
    """Ends a program, and returns its status: that of SIGKILL if it does not end by itself."""
    process.send_signal(signal_number)
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Postgres:
    def __init__(self, directory):
        self._directory = directory
        versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"),
                          key=lambda path: int(path.parts[-3]))
        if not versions:
            raise SystemExit("PostgreSQL is not installed (apt-get install postgresql)")
        self._programs = versions[-1].parent
        directory.mkdir()
        if os.geteuid() == 0:  # It refuses to run as root.
            user = pwd.getpwnam("postgres")
            os.chown(directory, user.pw_uid, user.pw_gid)
            for parent in directory.parents[:1]:
                parent.chmod(0o755)
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "test", "--no-sync")
        self.start()
        self._run("createdb", "-h", str(self._directory), "-U", "test", "perseus")

    def _command(self, program, *arguments):
        drop = ["setpriv", "--pdeathsig", "QUIT", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        return [*(drop if os.geteuid() == 0 else []), str(self._programs / program), *arguments]

    def _run(self, program, *arguments):
        done = subprocess.run(self._command(program, *arguments), cwd=self._directory,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr}")
        return done.stdout

    def start(self):
        log = open(self._directory.parent / "postgres.log", "a")
        self._server = subprocess.Popen(
            self._command("postgres", "-D", "data", "-k", str(self._directory),
                          "-c", "listen_addresses=", "-c", "max_connections=200"),
            cwd=self._directory, stdout=log, stderr=log)
        while True:
            try:
                self._run("pg_isready", "-q", "-h", str(self._directory))
                return
            except RuntimeError:
                time.sleep(0.1)

    def crash(self):
        # As a crash of the machine, but for the disk: no process says goodbye.
        children = pathlib.Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children")
        processes = [self._server.pid, *map(int, children.read_text().split())]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._server.wait()

    def ask(self, sql):
        return self._run("psql", "-h", str(self._directory), "-U", "test", "-At", "-c", sql, "perseus").split("\n")[:-1]

    def address(self):
        return f"postgresql://test@/perseus?host={self._directory}"

    def stop(self):
        return ended(self._server, signal.SIGINT)


class Replica:
    def __init__(self, program, directory, database, number):
        self._program, self._directory = program, directory
        self._database, self.number = database, number
        self._clock = directory / f"clock{number}"
        self.step_clock(0)
        self.port = 0
        self.start()

    def start(self):
        self._log = self._directory / f"serve{self.number}.log"
        begun = self._log.stat().st_size if self._log.exists() else 0
        environment = dict(os.environ)
        if FAKETIME.exists():
            environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME_NO_CACHE": "1",
                            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                            "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self._server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", self._program, "serve", "--listen", f"127.0.0.1:{self.port}", "--database",
             self._database, "--replica", f"r{self.number}", "--rate", "1000"],
            stdout=subprocess.DEVNULL, stderr=open(self._log, "a"), env=environment)
        while not (found := re.search(r"127\.0\.0\.1:(\d+)", self._log.read_text()[begun:])):
            if self._server.poll() is not None:
                raise RuntimeError(self._log.read_text()[begun:])
            time.sleep(0.05)
        self.port = int(found[1])

    def crash(self):
        self._server.kill()
        self._server.wait()

    def step_clock(self, hours):
        """Sets the clock of this replica to this distance from the real one."""
        self._clock.write_text(f"{hours * 3600:+d}\n")

    def stop(self):
        return ended(self._server, signal.SIGTERM)
