"""Death and stopping: what survives SIGKILL, what SIGTERM waits for."""
from cairn_http import *

SYSTEM = "You are the clerk of a library. " + prompt_of(60)


def chat(server, question, **fields):
    body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            "temperature": 0, "max_tokens": 8}
    body.update(fields)
    status, answer = server.post("/v1/chat/completions", body)
    equal(status, 200, answer)
    usage = answer["usage"]
    return (answer["choices"][0]["message"]["content"], usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"], answer["timings"])


def settled(server):
    """The weights are hashed and what was put is on disk, so that a kill loses nothing."""
    wait_until(lambda: "disk cache on" in server.log(), 60, "the weights digest")


def pages(server):
    return [name for _, _, names in os.walk(os.path.join(server.cache, "v1")) for name in names
            if name.endswith(".page")]


# What a request restores by itself: a warm start would have done it before.
COLD_START = ("--warm-start", "off")


def test_sigkill_keeps_the_prefix():
    with Server(*COLD_START) as server:
        settled(server)
        _, n, cached, _ = chat(server, "Which books are new?")
        equal(cached, 0)
        wait_until(lambda: len(pages(server)) >= 2, 20, "the pages to be published")
        time.sleep(1.5)  # the short last page follows
        pid = server.process.pid
        server.kill()
        check(not os.path.exists(f"/proc/{pid}"))
        server.start()
        settled(server)
        _, n2, cached, timings = chat(server, "Which books are new?")
        equal((n2, cached, timings["from_store"]), (n, n - 1, n - 1))
        _, n3, cached, timings = chat(server, "Where is the door?")
        check(cached > n - 30, f"only {cached} of {n3} came back")
        server.kill()
        server.start()
        settled(server)
        _, n4, cached, timings = chat(server, "What is your name?")
        check(cached == timings["from_store"] and cached > n - 30, f"only {cached} of {n4} came back")


def test_what_does_not_change_kv_keeps_the_prefix():
    with Server(*COLD_START) as server:
        settled(server)
        _, n, _, _ = chat(server, "Which books are new?")
        time.sleep(2)
        first_port = server.port
        for change in (("--alias", "somebody"), ("--threads", "2" if THREADS else "1"), ("--batch", "128"), ("--sequences", "2"), ()):
            server.kill()
            server.options, server.ctx = [*COLD_START, *change], server.ctx if change else 2048
            server.start()
            settled(server)
            _, _, cached, timings = chat(server, "Which books are new?")
            equal((cached, timings["from_store"]), (n - 1, n - 1), f"after {change or 'another --ctx'}")
        check(server.port != first_port, "the port was to be another")


def test_reproducible_answers_do_not_depend_on_the_cache():
    with Server("--reproducible", "--batch", "64", *COLD_START) as server:
        settled(server)
        texts = [chat(server, "Tell me about whales.", max_tokens=24)[0]]
        texts.append(chat(server, "Tell me about whales.", max_tokens=24)[0])
        chat(server, "Something else.")
        texts.append(chat(server, "Tell me about whales.", max_tokens=24)[0])
        time.sleep(2)
        server.kill()
        server.start()
        settled(server)
        text, n, cached, timings = chat(server, "Tell me about whales.", max_tokens=24)
        equal(timings["from_store"], (n - 1) // 64 * 64, f"of {n}: whole grid steps")
        equal(texts + [text], [text] * 4)


def test_cache_off():
    with Server("--cache-disk", "off") as server:
        first = chat(server, "Hello?")
        check("--cache-disk off" in server.log())
        server.kill()
        server.start()
        equal(chat(server, "Hello?")[2], 0)
        check(not os.path.exists(server.cache), "a cache folder although it is off")
        check(first[1] > 100)


def test_sigterm_when_idle():
    with Server() as server:
        server.chat("Hello.", max_tokens=2)
        begin = time.monotonic()
        equal(server.terminate(), 0)
        check(time.monotonic() - begin < 15, "took too long")
        try:
            server.connect(timeout=2)
            raise Failure("the port still answers")
        except ConnectionRefusedError:
            pass


def test_sigterm_lets_the_stream_end():
    with Server() as server:
        stream = server.stream("/v1/completions", {"prompt": "Count: 1, 2, 3,", "max_tokens": 60, "ignore_eos": True,
                                                   "temperature": 0})
        chunks = stream.chunks()
        next(chunks)
        server.process.send_signal(signal.SIGTERM)
        rest = list(chunks)
        check(stream.done, "the stream was cut")
        equal(rest[-1]["choices"][0]["finish_reason"], "length")
        equal(rest[-1]["timings"]["predicted_n"], 60)
        equal(server.process.wait(timeout=30), 0)


def test_sigterm_has_its_limit():
    """The grace time over, the stream ends with an error, and others who wait hear of it."""
    with Server("--grace", "1") as server:
        stream = server.stream("/v1/completions", {"prompt": "Once", "max_tokens": 900, "ignore_eos": True})
        chunks = stream.chunks()
        next(chunks)
        waiting = server.stream("/v1/completions", {"prompt": "Twice", "max_tokens": 5})
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        rest = list(chunks)
        check(time.monotonic() - begin < 10, "took too long")
        equal((rest[-1]["error"]["code"], stream.done), ("shutting_down", False))
        last = list(waiting.chunks())[-1]
        equal(last["error"]["code"], "shutting_down")
        equal(server.process.wait(timeout=30), 0)


def test_no_new_requests_while_stopping():
    with Server("--grace", "5") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        stream = server.stream("/v1/completions", {"prompt": "Once", "max_tokens": 80, "ignore_eos": True})
        chunks = stream.chunks()
        next(chunks)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        try:
            connection.request("GET", "/health")
            raise Failure("a new connection was accepted")
        except ConnectionRefusedError:
            pass
        list(chunks)
        equal(server.process.wait(timeout=30), 0)


def test_second_signal_ends_at_once():
    with Server("--grace", "60") as server:
        stream = server.stream("/v1/completions", {"prompt": "Once", "max_tokens": 900, "ignore_eos": True})
        next(stream.chunks())
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        equal(server.process.wait(timeout=10), 130)
        check(time.monotonic() - begin < 2, "took too long")


main([test_sigkill_keeps_the_prefix, test_what_does_not_change_kv_keeps_the_prefix, test_reproducible_answers_do_not_depend_on_the_cache, test_cache_off,
      test_sigterm_when_idle, test_sigterm_lets_the_stream_end, test_sigterm_has_its_limit,
      test_no_new_requests_while_stopping, test_second_signal_ends_at_once])
