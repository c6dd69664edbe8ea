"""An agent in Python: answers word by word, remembers what was said, stops when it is asked to."""
import json
import sys
import threading

stop = threading.Event()


def say(**line):
    print(json.dumps(line), flush=True)


def text_of(message):
    return " ".join(part["text"] for part in message["parts"] if "text" in part)


def answer(turn):
    before = [text_of(message) for message in turn["history"] if message["role"] == "ROLE_USER"]
    words = text_of(turn["message"]).split()
    for word in words:
        if stop.wait(0.05):  # a cancel came: say nothing more
            return say(type="end", state="canceled")
        say(type="status", message={"parts": [{"text": word + " "}]})
    say(type="artifact", artifact={"artifactId": "count", "parts": [{"data": {"words": len(words)}}]}, lastChunk=True)
    say(type="end", message={"parts": [{"text": f"(message {len(before) + 1} of this task)"}]})


def work():  # one turn after the other, while the main thread listens for a cancel
    for line in sys.stdin:
        line = json.loads(line)
        if line["type"] == "turn":
            stop.clear()
            threading.Thread(target=answer, args=(line,)).start()
        elif line["type"] == "cancel":
            stop.set()


work()
