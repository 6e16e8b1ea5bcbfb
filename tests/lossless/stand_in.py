"""An OpenAI-compatible server that says what it is told to: text, tokens, log-probabilities."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class StandIn(BaseHTTPRequestHandler):
    """`tell(prompt)` gives (token, logprob, margin) for each place, or an error's text."""

    def do_GET(self):
        self.answer({"data": [{"id": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        chat = self.path.endswith("chat/completions")
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        told = self.server.tell(prompt)
        if isinstance(told, str):
            self.answer({"error": told}, 400)
            return
        if body.get("logprobs") and not self.server.detailed:
            self.answer({"error": "logprobs is not supported"}, 400)
            return
        told = told[: body["max_tokens"]]
        text = "".join(token for token, _, _ in told)
        choice = {"message": {"content": text}} if chat else {"text": text}
        if body.get("logprobs") and chat:
            choice["logprobs"] = {
                "content": [
                    {"token": token, "logprob": p,
                     "top_logprobs": [{"logprob": p}, {"logprob": p - margin}]}
                    for token, p, margin in told
                ]
            }  # fmt: skip
        elif body.get("logprobs"):
            choice["logprobs"] = {
                "tokens": [token for token, _, _ in told],
                "token_logprobs": [p for _, p, _ in told],
                "top_logprobs": [{token: p, "other": p - margin} for token, p, margin in told],
            }
        self.answer({"choices": [choice], "usage": {"completion_tokens": len(told)}})

    def answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(tell, detailed=True):
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.tell, server.detailed, server.bodies = tell, detailed, []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
