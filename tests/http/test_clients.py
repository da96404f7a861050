"""Clients that leave, stall or crowd; the server's own health meanwhile."""
from cairn_http import *

server = None


def long_answer(n, prompt="Tell me a long story about the sea."):
    return {"prompt": prompt, "temperature": 0, "max_tokens": n, "ignore_eos": True, "stream": True}


def test_leaving_a_stream_frees_its_place():
    stream = server.stream("/v1/completions", long_answer(600))
    next(stream.chunks())
    stream.close()
    begin = time.monotonic()
    server.complete("hi", max_tokens=1)
    check(time.monotonic() - begin < 2, "the place was not free at once")


def test_leaving_a_prefill_frees_its_place():
    """Also without streaming: nothing is written that could fail."""
    for stream in (True, False):
        body = json.dumps({"prompt": prompt_of(80, first=5000 + 100 * stream), "max_tokens": 1, "stream": stream}).encode()
        s = server.connect()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.6)
        s.close()
        begin = time.monotonic()
        server.complete("hi", max_tokens=1)
        took = time.monotonic() - begin
        check(took < 3, f"the place was not free at once: {took:.1f} s, stream {stream}")
    wait_until(lambda: server.log().count("the client left") >= 3, 5, "the log to tell that clients left")


def test_a_prefill_given_up_is_kept():
    prompt = prompt_of(80, first=20000)
    stream = server.stream("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    done = 0
    while done < 256:
        line = stream.response.readline().decode()
        check(line, "the stream ended")
        if line.startswith(": prefill "):
            done = int(line.split()[2].split("/")[0])
    check(done < 700, "the prefill was over before it could be given up")
    stream.close()
    usage = server.complete(prompt, max_tokens=1)["usage"]
    check(usage["prompt_tokens_details"]["cached_tokens"] >= done, done, "tokens were done, kept:", usage)


def test_cancelling_queued_requests_leaves_the_running_one():
    """B040: the abort of one must never reach another."""
    prompt = "The history of the town begins"
    alone = joined(server.stream("/v1/completions", long_answer(60, prompt)).chunks())
    stream = server.stream("/v1/completions", long_answer(60, prompt))
    text, n = "", 0
    chunks = stream.chunks()
    for chunk in chunks:
        text += joined([chunk])
        n += 1
        if n % 6 == 0:
            s = server.connect()
            body = json.dumps({"prompt": "Somebody else " + str(n), "max_tokens": 50, "stream": n % 12 == 0}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.03)
            s.close()
    check(stream.done and n > 40, "the running stream was cut after", n)
    equal(text, alone)


def test_health_while_busy():
    """B046: one long prefill, twenty streams waiting, a megabyte being prepared."""
    streams = [server.stream("/v1/completions", {**long_answer(3, prompt_of(80, first=30000)), "stream": True})]
    bodies = [json.dumps(long_answer(2, f"Number {i}")).encode() for i in range(20)]
    sockets = []
    for body in bodies:
        s = server.connect()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        sockets.append(s)
    big = json.dumps({"messages": [{"role": "user", "content": "word " * 200000}]}).encode()
    s = server.connect()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(big) + big)
    sockets.append(s)
    slowest, end = 0, time.monotonic() + 5
    while time.monotonic() < end:
        for path in ("/health", "/v1/models"):
            begin = time.monotonic()
            equal(server.request("GET", path)[0], 200)
            slowest = max(slowest, time.monotonic() - begin)
        time.sleep(0.05)
    check(slowest < 0.5, f"slowest answer {slowest:.3f} s")
    for s in sockets:
        s.close()
    check(joined(streams[0].chunks()) != "")
    server.complete("hi", max_tokens=1)


def test_waiting_streams_hear_something():
    """Headers at once, then pings, progress or text: never ten seconds of silence."""
    ahead = [server.stream("/v1/completions", long_answer(900)) for _ in range(6)]  # busy for more than 7 s anywhere
    begin = time.monotonic()
    second = server.stream("/v1/completions", {"prompt": prompt_of(30, first=40000), "max_tokens": 2})
    check(time.monotonic() - begin < 1, "the headers came late")
    second.connection.sock.settimeout(10) if second.connection.sock else None
    time.sleep(7)
    for stream in ahead:
        stream.close()
    check(joined(second.chunks()) != "")
    check("ping" in second.comments, "no ping:", second.comments)


def test_prefill_progress():
    stream = server.stream("/v1/completions", {"prompt": prompt_of(80, first=50000), "max_tokens": 1})
    list(stream.chunks())
    progress = [c for c in stream.comments if c.startswith("prefill ")]
    check(progress, "no progress among", stream.comments)
    done, total = progress[-1].split()[1].split("/")
    check(0 < int(done) <= int(total), progress)


def test_a_reader_that_stalls():
    """It must not grow the server, nor stop others."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    body = json.dumps({**long_answer(300), "logprobs": 20}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(1)
    server.complete("hi", max_tokens=1, temperature=0)  # waits for its turn
    s.close()


def test_the_server_lives_on():
    server.chat("hi", max_tokens=2)
    check(server.process.poll() is None)


with Server("--batch", "128") as server:
    main([test_leaving_a_stream_frees_its_place, test_leaving_a_prefill_frees_its_place,
          test_a_prefill_given_up_is_kept, test_health_while_busy, test_waiting_streams_hear_something,
          test_prefill_progress, test_a_reader_that_stalls, test_the_server_lives_on,
          test_cancelling_queued_requests_leaves_the_running_one])
