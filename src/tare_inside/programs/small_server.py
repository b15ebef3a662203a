"""A small HTTP server for studies of load: `python -m tare_inside.programs.small_server PORT [MILLISECONDS [WORKERS]]`.

Each answer takes so many milliseconds of CPU time, in one of so many processes that share the port; it streams tokens,
one a millisecond, where a completion is asked for. Standard library only, and the same work wherever it runs.
"""

import http.server
import json
import os
import signal
import socket
import sys
import time

TOKENS = 8


def spin(seconds):
    """Use as much CPU time, whatever else runs."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out whole
    disable_nagle_algorithm = True
    work_s = 0.0

    def do_GET(self):
        spin(self.work_s)
        self._answer(b"done\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        spin(self.work_s)
        if "completions" not in self.path:
            self._answer(body)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(TOKENS):
            spin(0.001)
            self._chunk("data: {}\n\n".format(json.dumps({"choices": [{"text": " {}".format(number)}]})))
        self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text):
        self.wfile.write("{:x}\r\n{}\r\n".format(len(text), text).encode("ascii"))
        self.wfile.flush()

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Nothing is printed."""


def main(arguments):
    port, work_ms, workers = (int(each) for each in (arguments + ["2", "1"][len(arguments) - 1 :])[:3])
    Handler.work_s = work_ms / 1e3

    class Server(getattr(http.server, "ThreadingHTTPServer", http.server.HTTPServer)):
        request_queue_size = 1024
        daemon_threads = True

    server = Server(("127.0.0.1", port), Handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.server_bind()
    server.server_activate()
    for _ in range(workers - 1):
        if os.fork() == 0:
            break
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
