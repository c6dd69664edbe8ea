"""An agent that does what the words of its message say, in order; `+` in a word is a space. For tests."""
import json
import os
import signal
import subprocess
import sys
import time

turn = None


def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(**line):
    write(json.dumps(line).encode() + b"\n")


def text(value):
    return {"parts": [{"text": value}]}


def tree():
    """A child, and a great-grandchild that left session and parents behind; all deaf to SIGTERM."""
    deaf = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", "import os,subprocess,sys; subprocess.Popen([sys.executable,'-c',sys.argv[1]]); " + deaf, deaf])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.execv(sys.executable, [sys.executable, "-c", deaf])
        os._exit(0)
    os.wait()


def do(word, value):
    """Does a word; true when the turn is over with it whatever follows."""
    if word == "say":
        say(type="status", message=text(value))
    elif word == "line":
        write(value.replace("<task>", turn["task"]["id"]).encode() + b"\n")
    elif word == "raw":
        write(bytes.fromhex(value))
    elif word == "long":
        write(b'{"type":"status","message":{"parts":[{"text":"' + b"x" * int(value) + b'"}]}}\n')
    elif word == "long-end":
        say(type="end", message=text("y" * int(value)))
    elif word == "retry-before":
        if turn["turn"]["attempt"] < int(value):
            say(type="error", text="later", retryable=True)
            return True
    elif word == "flood":
        path, count = value.split(",")
        for n in range(int(count)):
            say(type="status", message=text("x" * 1000))
            if n % 50 == 0:
                with open(path, "w") as file:
                    file.write(str(n))
    elif word == "hold":
        time.sleep(float(value))
    elif word == "wait":
        while not os.path.exists(value):
            time.sleep(0.01)
    elif word == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif word == "tree":
        tree()
    elif word == "log":
        print(value, file=sys.stderr, flush=True)
    elif word == "close":
        os.close(1)
    elif word == "exit":
        os._exit(int(value))
    elif word == "exit-before":
        if turn["turn"]["attempt"] < int(value):
            os._exit(3)
    elif word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "keeper":
        os.kill(os.getppid(), signal.SIGKILL)
    elif word == "slay":
        os.kill(os.getppid(), signal.SIGKILL)
    elif word == "freeze":
        supervisor = os.getppid()
        os.kill(supervisor, signal.SIGSTOP)
        if value == "both":
            with open(f"/proc/{supervisor}/stat") as file:
                worker = file.read().rpartition(")")[2].split()[1]
            os.kill(int(worker), signal.SIGSTOP)
    elif word == "cancel":
        line = json.loads(sys.stdin.readline())
        with open(value, "w") as file:
            file.write(json.dumps(line))
    elif word == "remember":
        expect = turn["session"]["length"]
        say(type="session", items=[value], expect=expect)
        turn["session"]["length"] = json.loads(sys.stdin.readline())["length"]
        assert turn["session"]["length"] == expect + 1
    elif word == "pid":
        say(type="status", message=text(f"pid={os.getpid()};"))
    elif word == "turn":
        say(type="artifact", artifact={"artifactId": "turn", "parts": [{"data": turn}]})
    elif word == "env":
        say(type="artifact", artifact={"artifactId": "env", "parts": [{"data": dict(os.environ)}]})
    elif word == "suspend":
        say(type="suspend", state=value, message=text("asks"))
    elif word == "end":
        say(type="end", state=value, message=text("over"))


for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    for command in turn["message"]["parts"][0]["text"].split():
        word, _, value = command.partition("=")
        if do(word, value.replace("+", " ")):
            break
