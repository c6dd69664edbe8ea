"""A server of the Python SDK behind Relevo: our client sees one honest stream, whatever happens to the server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

BIN = Path(os.environ["SDK_BIN"])
HERE = Path(__file__).parent
TURN = "urn:relevo:a2a:turn:v1"


def until(what, condition):
    deadline = time.monotonic() + 60
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Cluster:
    """A gateway and a worker whose agent is a server of the SDK."""

    def __init__(self, folder):
        self.folder, self.running = folder, []
        self.mark = folder / "canceled"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "relevo.toml"
        config.write_text(
            f'[agents.sdk]\nkind = "a2a"\nurl = "http://127.0.0.1:{self.port}"\npolicy = "restart"\n'
            '[egress]\nbreaker_failures = 100\n'
        )
        redis = folder / "redis.sock"
        self.start("redis-server", "--port", "0", "--unixsocket", redis, "--save", "", "--dir", folder)
        until("redis", redis.exists)
        self.serve()
        more = ("--redis", f"redis+unix://{redis}", "--config", config, "--admin-listen", "127.0.0.1:0")
        for name, extra in (("gateway", ("--listen", "127.0.0.1:0")), ("worker", ())):
            ready = folder / f"{name}.ready"
            self.start(BIN / f"relevo-{name}", *more, "--ready-file", ready, *extra)
            until(name, ready.exists)
        listen = json.loads((folder / "gateway.ready").read_text())["listen"]
        self.http = httpx.Client(base_url=f"http://{listen}", headers={"A2A-Version": "1.0"}, timeout=60)

    def start(self, *command):
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.running.append(process)
        return process

    def serve(self):
        self.server = self.start(sys.executable, "-B", HERE / "server.py", self.port, self.mark)
        until("the server", lambda: accepts(self.port))

    def stream(self, text):
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}
        with self.http.stream("POST", "/message:stream", json={"message": message}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    def task(self, id):
        return self.http.get(f"/tasks/{id}").json()

    def stop(self):
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def text_of(task):
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def pieces(event):
    update = event.get("artifactUpdate")
    return "".join(part["text"] for part in update["artifact"]["parts"]) if update else ""


WHOLE = "".join(f"{n} " for n in range(10))


def test_its_stream_is_ours(cluster):
    events = list(cluster.stream("hello"))
    task = cluster.task(events[0]["task"]["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    assert task["status"]["message"]["parts"] == [{"text": "you said hello"}]
    assert text_of(task) == WHOLE
    assert "".join(map(pieces, events)) == WHOLE


def test_killed_in_the_middle_and_started_again(cluster):
    said, killed = "", False
    for event in cluster.stream("hello"):
        update = event.get("statusUpdate", {})
        if "boundary" in json.dumps(update.get("metadata", {})):
            # What came before is void.
            said = ""
        said += pieces(event)
        if "2" in said and not killed:
            killed = True
            cluster.server.send_signal(signal.SIGKILL)
            cluster.server.wait()
            cluster.serve()
        task = event.get("task", {}).get("id") or update.get("taskId")
    stored = cluster.task(task)
    assert killed
    assert stored["status"]["state"] == "TASK_STATE_COMPLETED", stored
    assert said == text_of(stored) == WHOLE


def test_a_cancel_reaches_it(cluster):
    stream = cluster.stream("wait")
    task = next(stream)["task"]["id"]
    for event in stream:
        if pieces(event):
            break
    canceled = cluster.http.post(f"/tasks/{task}:cancel", json={}).json()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED", canceled
    assert canceled["metadata"][TURN]["stopped"] == "acknowledged"
    assert cluster.mark.exists()
