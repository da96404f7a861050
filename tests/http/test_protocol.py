"""HTTP itself: framing, limits, deadlines, hostile clients. Raw sockets."""
from cairn_http import *

server = None
LIMIT = 1 << 20  # --max-body
BODY = json.dumps({"prompt": "hi", "max_tokens": 1, "temperature": 0}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


def status(data, **options):
    return status_of(raw_exchange(server, data, **options))


def post(extra, body):
    """Status of a POST with these header lines; the server closes after it."""
    return status(HEAD + b"Connection: close\r\n" + extra + b"\r\n" + body)


def chunked(data, size):
    out = b""
    for at in range(0, len(data), size):
        piece = data[at:at + size]
        out += b"%x\r\n" % len(piece) + piece + b"\r\n"
    return out + b"0\r\n\r\n"


def test_plain_and_chunked_bodies():
    equal(post(b"Content-Length: %d\r\n" % len(BODY), BODY), 200)
    for size in (1, 2, 7, 4096):
        equal(post(b"Transfer-Encoding: chunked\r\n", chunked(BODY, size)), 200, "chunks of", size)
    equal(post(b"Transfer-Encoding: Chunked\r\n", chunked(BODY, 5)), 200)
    extended = b"%x;name=\"va lue\";x\r\n" % len(BODY) + BODY + b"\r\n0;last\r\nTrailer: 1\r\nOther: 2\r\n\r\n"
    equal(post(b"Transfer-Encoding: chunked\r\n", extended), 200)


def test_bytes_one_by_one():
    data = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY, 3)
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        equal(status_of(read_all(s)), 200)


def test_bad_chunks():
    for body in (b"g\r\n", b"\r\n", b"-1\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhelloX",
                 b"5\r\nhello\n", b"ffffffffffffffffff\r\n", b"5 x" + b"y" * 9000 + b"\r\n", b"0\r\nbad\x01\r\n\r\n",
                 b"3;a\x00b\r\nabc\r\n0\r\n\r\n"):
        equal(post(b"Transfer-Encoding: chunked\r\n", body), 400, body[:20])


def test_framing_that_could_be_read_in_two_ways():
    n = b"Content-Length: %d\r\n" % len(BODY)
    for extra in (n + b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\n" + n, n + n,
                  n + b"Content-Length: 5\r\n", b"Content-Length: +5\r\n", b"Content-Length: -5\r\n",
                  b"Content-Length: 5, 5\r\n", b"Content-Length: 0x5\r\n", b"Content-Length: \r\n",
                  b"Content-Length : 5\r\n", b"Content-Length: 99999999999999999999\r\n",
                  b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"X: a\r\n folded: b\r\n" + n,
                  b"X: a\r\n\tb\r\n" + n, b": empty\r\n" + n, b"no colon\r\n" + n, b"X: \x00\r\n" + n, b"X\x80: y\r\n" + n,
                  b"X: a\rb\r\n" + n, b"X: a\n" + n, b"Host: y\r\n" + n):
        equal(post(extra, BODY), 400, extra)
    for coding in (b"gzip", b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked"):
        check(post(b"Transfer-Encoding: " + coding + b"\r\n", BODY) in (400, 501), coding)
    equal(post(b"Content-Encoding: gzip\r\n" + n, BODY), 415)
    equal(post(b"Content-Encoding: identity\r\n" + n, BODY), 200)


def test_malformed_heads():
    for data, want in ((b"\r\n\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
                       (b"GET /health HTTP/1.0\r\n\r\n", 200), (b"GET /health HTTP/1.1\r\n\r\n", 400),
                       (b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /health\r\n\r\n", 400),
                       (b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505),
                       (b"GET /health HTTP/1.1 \r\nHost: x\r\n\r\n", 400), (b"G(T /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
                       (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
                       (b"GET http://x/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
                       (b"GET /health?a=b&c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
                       (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 4000 + b"\r\n", 431),
                       (b"GET /" + b"x" * 20000, 431)):
        equal(status(data), want, data[:60])


def test_pipelined_requests():
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    answer = raw_exchange(server, one + get + b"\r\n" + one + get + b"Connection: close\r\n\r\n")
    equal(answer.count(b"HTTP/1.1 200 OK"), 4)
    equal(answer.count(b'{"status":"ok"}'), 2)
    check(answer.endswith(b'{"status":"ok"}'), answer[-80:])


def test_a_body_of_a_get_is_not_the_next_request():
    smuggled = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = raw_exchange(server, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                          % len(smuggled) + smuggled)
    equal((answer.count(b"HTTP/1.1"), status_of(answer)), (1, 200))


def test_expect_continue():
    body = json.dumps({"prompt": "hi", "max_tokens": 1, "pad": "x" * (LIMIT // 2)}).encode()
    with server.connect() as s:
        s.sendall(HEAD + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        equal(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
        s.sendall(body)
        equal(status_of(read_all(s)), 200)
    equal(post(b"Expect: something\r\nContent-Length: 5\r\n", b""), 417)
    # What would be refused anyway is refused before the body comes.
    equal(status(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1)), 413)
    equal(status(b"POST /nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), 404)


def test_bodies_over_the_limit():
    def body(size):
        return b'{"prompt":"hi","max_tokens":1,"pad":"' + b"x" * (size - 39) + b'"}'

    equal(len(body(LIMIT)), LIMIT)
    equal(post(b"Content-Length: %d\r\n" % LIMIT, body(LIMIT)), 200)
    equal(post(b"Transfer-Encoding: chunked\r\n", chunked(body(LIMIT), 60000)), 200)
    for size in (LIMIT + 1, 8 * LIMIT):
        answer = raw_exchange(server, HEAD + b"Content-Length: %d\r\n\r\n" % size + body(size))
        equal(status_of(answer), 413, size)
        equal(json.loads(answer[answer.index(b"\r\n\r\n") + 4:])["error"]["code"], "body_too_large")
        equal(status(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body(size), 60000)), 413, size)


def test_silence_and_drips():
    """--read-timeout 2: half a request, then silence or a byte a second."""
    begin = time.monotonic()
    for start in (b"POST /v1/comp", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{",
                  HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"):
        equal(status(start), 408, start)
    check(time.monotonic() - begin < 20, "took too long")
    equal(raw_exchange(server, b""), b"", "a connection without a byte is closed without one")
    for start in (HEAD, HEAD + b"Content-Length: 100\r\n\r\n"):
        with server.connect() as s:
            s.sendall(start)
            begin = time.monotonic()
            s.settimeout(0.5)
            answer = b""
            while not answer and time.monotonic() - begin < 15:
                try:
                    answer = s.recv(4096)
                except socket.timeout:
                    s.sendall(b" ")
            equal(status_of(answer), 408, "drip after", start)


def test_half_a_request_and_gone():
    for data in (HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", b"G"):
        equal(raw_exchange(server, data, half_close=True), b"")


def test_many_idle_connections():
    sockets = []
    try:
        for i in range(1100):  # more than are kept
            s = server.connect()
            if i % 2:
                s.sendall(b"GET /heal")
            sockets.append(s)
        begin = time.monotonic()
        equal(server.request("GET", "/health")[0], 200)
        check(time.monotonic() - begin < 0.5, "slow /health")
        server.complete("hi", max_tokens=1)
    finally:
        for s in sockets:
            s.close()


def test_keep_alive():
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(3):
        connection.request("POST", "/v1/completions", body=BODY)
        first = connection.sock
        response = connection.getresponse()
        equal((response.status, bool(response.read())), (200, True))
        check(connection.sock is first, "the connection was closed")
    connection.request("POST", "/v1/completions", body=json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}))
    response = connection.getresponse()
    check(response.read().endswith(b"data: [DONE]\n\n"))
    check(connection.sock is first, "closed after a stream")
    connection.request("POST", "/v1/completions", body=b"{")
    equal(connection.getresponse().status, 400)
    connection.close()


def test_http_1_0_streams():
    body = json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}).encode()
    answer = raw_exchange(server, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    equal(status_of(answer), 200)
    check(b"Transfer-Encoding" not in answer and answer.endswith(b"data: [DONE]\n\n"), answer[-100:])


def test_the_server_lives_on():
    server.chat("hi", max_tokens=2)
    check(server.process.poll() is None)


with Server("--max-body", "1M", "--read-timeout", "2", ctx=256) as server:
    main([test_plain_and_chunked_bodies, test_bytes_one_by_one, test_bad_chunks,
          test_framing_that_could_be_read_in_two_ways, test_malformed_heads, test_pipelined_requests,
          test_a_body_of_a_get_is_not_the_next_request, test_expect_continue, test_bodies_over_the_limit,
          test_silence_and_drips, test_half_a_request_and_gone, test_many_idle_connections, test_keep_alive,
          test_http_1_0_streams, test_the_server_lives_on])
