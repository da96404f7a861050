"""Helpers of the HTTP tests: a server of one's own, requests, streams, a runner.

Every server has its own port, cache root and HOME in a temporary folder, and is
ended by its process id. Standard library only.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
MODEL = os.environ.get("CAIRN_TEST_MODEL") or os.path.expanduser(
    "~/.cache/cairn-build/models/SmolLM2-135M-Instruct.Q4_1.gguf")
SKIP = 77


# Of each server, for tests that run beside each other.
THREADS = ["--threads", os.environ["CAIRN_TEST_THREADS"]] if os.environ.get("CAIRN_TEST_THREADS") else []


def environment(home):
    """Nothing of the caller's but what the sanitizers need, and how threads wait. OMP_WAIT_POLICY=passive
    is for a machine that is busy otherwise: two teams that spin at their barriers on the same cores make
    each other wait for minutes."""
    kept = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS") or k == "OMP_WAIT_POLICY"}
    return {"HOME": home, "PATH": os.environ.get("PATH", ""), **kept}


class Failure(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failure(" ".join(str(w) for w in what) or "check failed")


def equal(got, want, *what):
    if got != want:
        raise Failure(f"{' '.join(str(w) for w in what)}: got {got!r}, want {want!r}")


def need_model():
    if not os.path.exists(MODEL):
        print(f"skipped: no model at {MODEL}; set CAIRN_TEST_MODEL")
        sys.exit(SKIP)


def prompt_of(n_items, first=0):
    """About six tokens an item; the same for the same arguments."""
    return " ".join(f"item{i} is {i * 7 % 13}." for i in range(first, first + n_items))


class Server:
    """A running `cairn serve`. Use as a context manager."""

    def __init__(self, *options, folder=None, ctx=1024, env=None, model=None):
        need_model()
        self.folder = folder or tempfile.mkdtemp(prefix="cairn-test-")
        self.owns_folder = folder is None
        self.log_path = os.path.join(self.folder, "log")
        self.cache = os.path.join(self.folder, "cache")
        self.options = list(options)
        self.ctx = ctx
        self.env = env or {}
        self.model = model or MODEL
        self.process = None
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise

    def start(self):
        port_file = os.path.join(self.folder, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        home = os.path.join(self.folder, "home")
        os.makedirs(home, exist_ok=True)
        command = [PROGRAM, "serve", "-m", self.model, "--port", "0", "--port-file", port_file, "--cache-dir",
                   self.cache, "--cache-disk", "256M", "--cache-reserve", "1M", "--ctx", str(self.ctx),
                   "--verbose", *THREADS, *self.options]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**environment(home), **self.env})
        deadline = time.monotonic() + 90
        while not os.path.exists(port_file):
            if self.process.poll() is not None:
                raise Failure(f"the server ended with {self.process.returncode}: {self.log()[-2000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise Failure("the server did not start in 90 s")
            time.sleep(0.02)
        with open(port_file) as f:
            self.port = int(f.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        if self.owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process:
            self.process.wait(timeout=30)

    def terminate(self, timeout=60):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=timeout)

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    # ---- requests ----

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, body bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path, body, timeout=120):
        """(status, parsed JSON); body is an object or raw bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answer = self.request("POST", path, data, {"Content-Type": "application/json"}, timeout)
        return status, json.loads(answer)

    def chat(self, content="Say hello.", **fields):
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8}
        body.update(fields)
        status, answer = self.post("/v1/chat/completions", body)
        equal(status, 200, "chat", answer)
        return answer

    def complete(self, prompt, **fields):
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 8}
        body.update(fields)
        status, answer = self.post("/v1/completions", body)
        equal(status, 200, "completion", answer)
        return answer

    def stream(self, path, body, timeout=120):
        """A Stream that has its headers; the caller reads and closes it."""
        return Stream(self, path, body, timeout)


class Stream:
    """Server-sent events as they arrive: comments, and parsed data chunks."""

    def __init__(self, server, path, body, timeout=120):
        data = json.dumps({**body, "stream": True}).encode()
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        self.connection.request("POST", path, body=data, headers={"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.comments = []
        self.done = False

    def chunks(self):
        """Yields parsed chunks until [DONE] or the end."""
        while True:
            line = self.response.readline()
            if not line:
                return
            text = line.decode("utf-8").rstrip("\n")  # raises on bad UTF-8
            if text.startswith(":"):
                self.comments.append(text[1:].strip())
            elif text == "data: [DONE]":
                self.done = True
            elif text.startswith("data: "):
                yield json.loads(text[6:])
            else:
                equal(text, "", "a line that is no event")

    def close(self):
        self.connection.close()
        self.response.close()


def joined(chunks):
    """Text of streamed chat deltas or completion pieces."""
    text = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


def raw_exchange(server, data, timeout=20, half_close=False):
    """Sends bytes, reads until the server closes or answers fully; returns what came."""
    with server.connect(timeout) as s:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        if half_close:
            s.shutdown(socket.SHUT_WR)
        return read_all(s)


def read_all(s):
    answer = b""
    while True:
        try:
            piece = s.recv(65536)
        except (ConnectionResetError, socket.timeout):
            return answer
        if not piece:
            return answer
        answer += piece


def status_of(answer):
    check(answer.startswith(b"HTTP/1.1 "), "no HTTP answer:", answer[:80])
    return int(answer[9:12])


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, "waited in vain for", what)
        time.sleep(0.02)


failed = 0


def run(tests):
    """Runs the functions in order."""
    global failed
    for test in tests:
        begin = time.monotonic()
        try:
            test()
            print(f"ok   {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:  # noqa: BLE001 - a test may fail in any way
            failed += 1
            print(f"FAIL {test.__name__}\n{traceback.format_exc()}", flush=True)


def finish():
    """Ends the test program; the exit code says whether all passed."""
    sys.exit(1 if failed else 0)


def main(tests):
    run(tests)
    finish()
