"""A server of the Python SDK behind Relevo: our client sees one honest stream, whatever happens to the server and to our workers."""

import json
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest
from cluster import Processes, accepts, free_port, until

HERE = Path(__file__).parent
TURN = "urn:relevo:a2a:turn:v1"
# The servers, as they are started.
SERVERS = {
    "JSONRPC": (sys.executable, "-B", HERE / "server.py", "{port}", "{folder}", "JSONRPC"),
    "HTTP+JSON": (sys.executable, "-B", HERE / "server.py", "{port}", "{folder}", "HTTP+JSON"),
    "JSONRPC 0.3": (os.environ["SDK_PYTHON03"], "-B", HERE / "server03.py", "{port}", "{folder}"),
}


class Cluster(Processes):
    """A gateway and workers whose agent is a server of the SDK."""

    def __init__(self, folder, kind, policy="restart"):
        self.kind, self.port = kind, free_port()
        super().__init__(
            folder,
            f'[agents.sdk]\nkind = "a2a"\nurl = "http://127.0.0.1:{self.port}"\npolicy = "{policy}"\n'
            '[egress]\nbreaker_failures = 100\n[lease]\nttl = "2s"\n',
        )
        self.serve()
        ready, _ = self.member("gateway", "--listen", "127.0.0.1:0")
        self.worker = self.member("worker")[1]
        listen = json.loads(ready.read_text())["listen"]
        self.http = httpx.Client(base_url=f"http://{listen}", headers={"A2A-Version": "1.0"}, timeout=60)

    def serve(self):
        words = [str(word).format(port=self.port, folder=self.folder) for word in SERVERS[self.kind]]
        self.server = self.start(*words)
        until("the server", lambda: accepts(self.port))

    def file(self, name):
        return self.folder / name

    def runs(self):
        return len(self.file("runs").read_text().splitlines())

    def stream(self, text):
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}
        with self.http.stream("POST", "/message:stream", json={"message": message}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    def task(self, id):
        return self.http.get(f"/tasks/{id}").json()


@pytest.fixture(params=SERVERS)
def cluster(request, tmp_path):
    cluster = Cluster(tmp_path, request.param)
    yield cluster
    cluster.stop()


def text_of(task):
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def pieces(event):
    update = event.get("artifactUpdate")
    return "".join(part["text"] for part in update["artifact"]["parts"]) if update else ""


def is_boundary(event):
    return "boundary" in json.dumps(event.get("statusUpdate", {}).get("metadata", {}))


def task_of(event):
    return event.get("task", {}).get("id") or event.get("statusUpdate", {}).get("taskId")


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
        if is_boundary(event):
            # What came before is void.
            said = ""
        said += pieces(event)
        if "2" in said and not killed:
            killed = True
            cluster.server.send_signal(signal.SIGKILL)
            cluster.server.wait()
            cluster.serve()
        task = task_of(event)
    stored = cluster.task(task)
    assert killed
    assert stored["status"]["state"] == "TASK_STATE_COMPLETED", stored
    assert said == text_of(stored) == WHOLE


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_is_lost_in_the_middle(cluster, how):
    first, said, boundaries = cluster.worker, "", 0
    for event in cluster.stream("pause"):
        if is_boundary(event):
            said, boundaries = "", boundaries + 1
        said += pieces(event)
        if "4 " in said and boundaries:
            cluster.file("go").touch()
        elif "4 " in said and cluster.worker is first:
            first.send_signal(how)
            cluster.worker = cluster.member("worker")[1]
        task = task_of(event)
    stored = cluster.task(task)
    assert stored["status"]["state"] == "TASK_STATE_COMPLETED", stored
    assert stored["status"]["message"]["parts"] == [{"text": "you said pause"}]
    assert (said, text_of(stored), boundaries) == (WHOLE, WHOLE, 1)
    # What was stopped wakes, and does nothing that anybody would see.
    first.send_signal(signal.SIGCONT)
    first.terminate()
    first.wait(60)
    assert cluster.task(task) == stored
    assert cluster.runs() == 1


def test_a_cancel_reaches_it(cluster):
    stream = cluster.stream("wait")
    task = next(stream)["task"]["id"]
    for event in stream:
        if pieces(event):
            break
    canceled = cluster.http.post(f"/tasks/{task}:cancel", json={}).json()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED", canceled
    assert canceled["metadata"][TURN]["stopped"] == "acknowledged"
    assert cluster.file("canceled").exists()


def test_what_must_not_run_twice_is_canceled_when_its_worker_is_lost(tmp_path):
    cluster = Cluster(tmp_path, "JSONRPC", policy="fail")
    try:
        lost = False
        for event in cluster.stream("wait"):
            if pieces(event) and not lost:
                lost = True
                cluster.worker.kill()
                cluster.member("worker")
            task = task_of(event)
        stored = cluster.task(task)
        facts = stored["metadata"][TURN]
        assert (stored["status"]["state"], facts["reason"]) == ("TASK_STATE_FAILED", "attempts_exhausted"), stored
        assert (facts["stopped"], text_of(stored)) == ("acknowledged", "waiting")
        assert cluster.file("canceled").exists()
        assert cluster.runs() == 1
    finally:
        cluster.stop()
