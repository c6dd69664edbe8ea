"""An agent in Python that makes files: hands each over by its name, and goes on when it has been read."""
import json
import pathlib
import sys
import tempfile


def say(**line):
    print(json.dumps(line), flush=True)


def read_so_far(session):  # the answer to a session line comes when everything said before it is written
    say(type="session", items=[], expect=session["length"])
    while (line := json.loads(sys.stdin.readline()))["type"] == "cancel":
        pass
    return line["type"] == "committed"


for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    words = " ".join(part.get("text", "") for part in turn["message"]["parts"]).split()
    with tempfile.TemporaryDirectory(dir=".") as folder:  # in the workspace: files elsewhere are refused
        report = pathlib.Path(folder, "report.csv")
        report.write_text("".join(f"{n},{word}\n" for n, word in enumerate(words)))
        say(type="artifact", artifact={"artifactId": "report", "parts": [{"file": str(report)}]}, lastChunk=True)
        read_so_far(turn["session"])  # only then may the file go
    say(type="end", message={"parts": [{"text": f"{len(words)} words."}]})
