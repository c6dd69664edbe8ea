"""A stand-in for a chat model: an endpoint like OpenAI's that repeats what it is told. python3 chat_endpoint.py PORT"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = [m["content"] for m in request["messages"] if m["role"] == "user"]
        answer = f"You said: {said[-1]}" + (f" And before that: {said[-2]}" if said[1:] else "")
        if not request.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            body = json.dumps({"model": request["model"], "choices": [choice]}).encode()
            self.head("application/json", "Content-Length", str(len(body)))
            self.wfile.write(body)
            return
        self.head("text/event-stream", "Transfer-Encoding", "chunked")
        for word in answer.split(" "):
            self.event({"choices": [{"index": 0, "delta": {"content": word + " "}}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def head(self, kind, name, value):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header(name, value)
        self.end_headers()

    def event(self, data):
        self.chunk(f"data: {json.dumps(data)}\n\n".encode())

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Endpoint)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
