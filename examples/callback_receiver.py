"""Receive the callbacks of dagmaster: python examples/callback_receiver.py PORT

It needs `pip install standardwebhooks` and the secret of your tenant in DAGMASTER_WEBHOOK_SECRET (whsec_...). Behind TLS it
is all that an integration needs: verify, remember the id, answer at once, work afterwards.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BODY = 65_536


class Receiver(BaseHTTPRequestHandler):
    """Accepts each callback once."""

    webhook: Webhook
    work: queue.Queue[dict[str, str]] = queue.Queue()
    # In production: a table with a unique key. Each state of a request has one id, however often it is sent.
    seen: set[str] = set()
    lock = threading.Lock()

    def do_POST(self) -> None:
        """Verify a callback and answer; what it means is somebody else's work."""
        body = self.rfile.read(min(int(self.headers.get("content-length", "0")), MAX_BODY))
        try:
            callback = self.webhook.verify(body, dict(self.headers.items()))
        except WebhookVerificationError:
            return self.answer(401)
        with self.lock:
            if self.headers["webhook-id"] not in self.seen:
                self.seen.add(self.headers["webhook-id"])
                self.work.put(callback)
        return self.answer(204)

    def answer(self, status: int) -> None:
        """Send a status without a body."""
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


def read_secret(secret: str) -> Webhook:
    """Return what verifies callbacks; raise `ValueError` about what is no secret."""
    if not secret.startswith("whsec_") or len(secret) == len("whsec_"):
        raise ValueError(secret)
    return Webhook(secret)


def main() -> None:
    """Print what arrives."""
    try:
        Receiver.webhook = read_secret(os.environ.get("DAGMASTER_WEBHOOK_SECRET", ""))
    except ValueError:
        print(
            "set DAGMASTER_WEBHOOK_SECRET to the secret of your tenant, which begins with whsec_",
            file=sys.stderr,
        )
        sys.exit(2)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        print(json.dumps(Receiver.work.get()), flush=True)


if __name__ == "__main__":
    main()
