"""What the suites share whose clusters are their own: Relevo's processes and others, gone with the suite however that ends."""

import os
import socket
import subprocess
import time
from pathlib import Path

BIN = Path(os.environ["SDK_BIN"])


def until(what, condition):
    deadline = time.monotonic() + 60
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Processes:
    """Redis, and whatever is started beside it; logs and ready files are in `folder`."""

    def __init__(self, folder, config):
        """`config`: the text of Relevo's configuration."""
        self.folder, self.running = folder, []
        file, redis = folder / "relevo.toml", folder / "redis.sock"
        file.write_text(config)
        self.start("redis-server", "--port", "0", "--unixsocket", redis, "--save", "", "--dir", folder)
        until("redis", redis.exists)
        self.more = ("--redis", f"redis+unix://{redis}", "--config", file, "--admin-listen", "127.0.0.1:0")

    def start(self, *command):
        log = (self.folder / "log").open("ab")
        # Gone with this process, however that ends.
        words = ["setpriv", "--pdeathsig", "KILL", "--", *(str(word) for word in command)]
        process = subprocess.Popen(words, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def member(self, name, *more):
        ready = self.folder / f"{name}-{len(self.running)}.ready"
        process = self.start(BIN / f"relevo-{name}", *self.more, "--ready-file", ready, *more)
        until(name, ready.exists)
        return ready, process

    def stop(self):
        for process in self.running:
            process.kill()
            process.wait()
