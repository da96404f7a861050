"""What the demo and the benches in Python share: servers as real processes,
streaming requests with a clock, medians and tables. Standard library only.

Every process started here is ended by its id when the script ends, whichever
way it ends; nothing is ever ended by name."""
import atexit
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of the sources
_running = []
_libc = ctypes.CDLL(None)  # loaded before any fork


class Failure(Exception):
    """A message for the person who started the script."""


# ---- processes ----

def _stop_all():
    for process in list(_running):
        process.kill()


def _on_signal(number, _frame):
    raise SystemExit(128 + number)


def install_cleanup():
    """Ends all started processes on exit, Ctrl-C, SIGTERM and SIGHUP."""
    atexit.register(_stop_all)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)


def _die_with_parent():
    """The child is killed with the script, even if that one dies by SIGKILL."""
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    """One server process. `argv` is complete but for what `port_args` returns."""

    name = "server"

    def __init__(self, argv, log_path, env=None):
        self.argv = argv
        self.log_path = log_path
        self.host = "127.0.0.1"
        self.port = None
        self.started = time.monotonic()
        with open(log_path, "ab") as log:
            # A session of its own: Ctrl-C reaches the script alone, which then stops the server.
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                            start_new_session=True, preexec_fn=_die_with_parent)
        self.pid = self.process.pid
        _running.append(self)

    def find_port(self):
        return self.port

    def wait_ready(self, timeout=300.0):
        """Until /health answers 200. Returns seconds since the process was started."""
        while time.monotonic() - self.started < timeout:
            if self.process.poll() is not None:
                raise Failure(f"{self.name} ended with exit code {self.process.returncode}; its last words:\n"
                              + tail(self.log_path))
            if self.find_port() and self._healthy():
                return time.monotonic() - self.started
            time.sleep(0.005)
        raise Failure(f"{self.name} was not ready within {timeout:.0f} s; its last words:\n" + tail(self.log_path))

    def _healthy(self):
        try:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
            connection.request("GET", "/health")
            status = connection.getresponse().status
            connection.close()
            return status == 200
        except (OSError, http.client.HTTPException):
            return False

    def kill(self):
        """SIGKILL, by id, and waits. Accepts a process that is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._forget()

    def terminate(self, timeout=60):
        """SIGTERM and waits; returns the exit code."""
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()
        return self.process.returncode

    def _forget(self):
        if self in _running:
            _running.remove(self)

    def is_gone(self):
        """Neither the process nor its port is there."""
        try:
            os.kill(self.pid, 0)
            return False
        except ProcessLookupError:
            pass
        try:
            socket.create_connection((self.host, self.port), timeout=2).close()
            return False
        except ConnectionRefusedError:
            return True

    def resident_kib(self, field="VmHWM"):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        return 0


class Cairn(Server):
    name = "cairn"

    def __init__(self, program, model, work, extra=()):
        self.port_file = os.path.join(work, "port")
        if os.path.exists(self.port_file):
            os.unlink(self.port_file)
        argv = [program, "serve", "-m", model, "--host", "127.0.0.1", "--port", "0",
                "--port-file", self.port_file, *extra]
        super().__init__(argv, os.path.join(work, "cairn.log"))

    def find_port(self):
        if self.port is None:
            try:
                with open(self.port_file, encoding="ascii") as file:
                    text = file.read()
                if text.endswith("\n"):
                    self.port = int(text)
            except (OSError, ValueError):
                return None
        return self.port


class LlamaServer(Server):
    name = "llama-server"

    def __init__(self, program, model, work, slots, extra=()):
        port = free_port()
        argv = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "--slot-save-path", slots, *extra]
        super().__init__(argv, os.path.join(work, "llama-server.log"))
        self.port = port


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tail(path, size=2000):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - size))
        return file.read().decode("utf-8", "replace")


# ---- requests ----

def post(server, path, body, timeout=3600):
    """One JSON request, one JSON answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise Failure(f"{server.name} answered {response.status} to {path}: {text[:500].decode('utf-8', 'replace')}")
    return json.loads(text)


class Answer:
    """A streamed answer with times at the client, in seconds."""

    def __init__(self):
        self.ttft = None       # request sent to first token in the stream
        self.total = None      # request sent to end of stream
        self.last_token = None
        self.text = ""
        self.n_deltas = 0
        self.usage = {}
        self.timings = {}
        self.finish = None

    @property
    def prompt_tokens(self):
        return self.usage.get("prompt_tokens", self.timings.get("prompt_n", 0) + self.timings.get("cache_n", 0))

    @property
    def cached_tokens(self):
        details = self.usage.get("prompt_tokens_details") or {}
        return details.get("cached_tokens", self.timings.get("cache_n"))


def _delta_text(event):
    """Text that an event brings, whatever the protocol; None if it brings no token."""
    if "content" in event:  # llama-server's own /completion
        return event["content"] if not event.get("stop") else None
    for choice in event.get("choices", ()):
        if choice.get("text"):
            return choice["text"]
        delta = choice.get("delta") or {}
        for key in ("content", "reasoning_content"):
            if delta.get(key):
                return delta[key]
        if delta.get("tool_calls"):
            return json.dumps(delta["tool_calls"])
    return None


def stream(server, path, body, timeout=3600, on_prefill=None):
    """Sends `body` with stream on and reads the events as they come; on_prefill("prefill 512/7500") says how far it is."""
    answer = Answer()
    payload = json.dumps({**body, "stream": True}).encode()
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.monotonic()
    connection.request("POST", path, payload, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise Failure(f"{server.name} answered {response.status} to {path}: "
                      + response.read(500).decode("utf-8", "replace"))
    while True:
        line = response.readline()
        now = time.monotonic() - start
        if not line:
            break
        if on_prefill and line.startswith(b": prefill "):
            on_prefill(line[2:].decode().strip())
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            continue
        event = json.loads(line[5:])
        if event.get("error"):
            raise Failure(f"{server.name}: {event['error']}")
        text = _delta_text(event)
        if text is not None:
            answer.ttft = now if answer.ttft is None else answer.ttft
            answer.last_token = now
            answer.text += text
            answer.n_deltas += 1
        answer.usage = event.get("usage") or answer.usage
        answer.timings = event.get("timings") or answer.timings
        for choice in event.get("choices", ()):
            answer.finish = choice.get("finish_reason") or answer.finish
    connection.close()
    answer.total = time.monotonic() - start
    if answer.ttft is None:
        raise Failure(f"{server.name} sent no token")
    return answer


class Progress:
    """A line that shows how long something takes and how far it is: live on a terminal,
    else one line, and one more every ten seconds that there is something to say."""

    def __init__(self, label, stream_=sys.stderr):
        self.label = label
        self.detail = ""
        self.said = 0
        self.out = stream_
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.start = self.said = time.monotonic()
        self.out.write(self.label + (" " if self.out.isatty() else "\n"))
        self.out.flush()
        self.thread.start()
        return self

    def note(self, detail):
        self.detail = detail
        if not self.out.isatty() and time.monotonic() - self.said >= 10:
            self.said = time.monotonic()
            self.out.write(f"  {detail}\n")
            self.out.flush()

    def _show(self, detail, end=""):
        self.out.write(f"\r{self.label} {time.monotonic() - self.start:6.1f} s  {detail}\033[K{end}")
        self.out.flush()

    def _run(self):
        while self.out.isatty() and not self.done.wait(0.1):
            self._show(self.detail)

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        if self.out.isatty():
            self._show("", "\n")


# ---- numbers ----

def median(values):
    values = sorted(values)
    n = len(values)
    return values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2


def memcpy_seconds(size, piece=1 << 20):
    """Median time of copying `size` bytes between touched buffers."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memset(source, 1, size)
    ctypes.memset(target, 1, size)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for at in range(0, size, piece):
            ctypes.memmove(ctypes.byref(target, at), ctypes.byref(source, at), min(piece, size - at))
        times.append(time.perf_counter() - start)
    return median(times)


def tree_bytes(path):
    """Bytes that the files under `path` occupy on the disk."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # a temporary file that was renamed meanwhile
    return total


def table(header, rows, out=sys.stdout):
    """Left-aligned first column, right-aligned others, in Markdown."""
    cells = [[str(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row):
        return "| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w)
                                 for i, (c, w) in enumerate(zip(row, widths))) + " |\n"

    out.write(line(cells[0]))
    out.write("|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|\n")
    for row in cells[1:]:
        out.write(line(row))
    out.flush()


def machine():
    """What the numbers were measured on, without names of machines."""
    model = "unknown"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            for text in info:
                if text.startswith("model name"):
                    model = text.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}


def write_json(path, result):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


class WorkFolder:
    """A temporary folder that is removed at the end, also after a failure."""

    def __init__(self, parent=None):
        self.path = tempfile.mkdtemp(prefix="cairn-bench-", dir=parent)
        atexit.register(shutil.rmtree, self.path, True)

    def sub(self, name):
        path = os.path.join(self.path, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path


# ---- command lines ----

def add_common_options(parser):
    """For benches that run the server. ./dev bench sets the environment variables."""
    parser.add_argument("--cairn", default=os.path.join(ROOT, "build", "cairn"), help="the program (default build/cairn)")
    parser.add_argument("--model", default=os.environ.get("CAIRN_TEST_MODEL"), help="default: $CAIRN_TEST_MODEL")
    parser.add_argument("--cairn-arg", action="append", default=[], metavar="ARG",
                        help="one more argument for cairn serve; may be repeated")
    parser.add_argument("--work", help="folder for cache roots and the like; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")


def check_common_options(args):
    for path, option in ((args.cairn, "--cairn"), (args.model, "--model")):
        if not path or not os.path.isfile(path):
            raise Failure(f"{option}: {path or 'not given'}: no such file")


def default_llama_server():
    folder = os.environ.get("LLAMA_BIN")
    return os.path.join(folder, "llama-server") if folder else ""


def run_main(main):
    """Runs main() with clean-up, failures as messages and exit codes."""
    install_cleanup()
    try:
        sys.exit(main())
    except Failure as failure:
        sys.stderr.write(f"error: {failure}\n")
        sys.exit(1)
