"""A server that is started again begins with the prompts that the one before had in memory."""
from cairn_http import *

# About 370 tokens each, alike in nothing.
FIRST = "The first. " + prompt_of(45)
SECOND = "Another one. " + prompt_of(45, 400)


def note_of(server):
    """The path of the note, or None; there is one identity."""
    found = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(server.cache, "v1"))
             for name in names if name == "recent"]
    check(len(found) <= 1, found)
    return found[0] if found else None


def settle(server):
    """All is written: pages, their short ends, and behind them the note."""
    equal(server.terminate(), 0)


def ask(server, prompt, **fields):
    """(text, prompt tokens, cached, of them from the store by this request)"""
    answer = server.complete(prompt, max_tokens=6, **fields)
    usage = answer["usage"]
    return (answer["choices"][0]["text"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
            answer["timings"]["from_store"])


def said(server):
    """What the last start said of a warm start."""
    last = server.log().rpartition("loading ")[2]
    return [line.partition("warm start: ")[2] for line in last.splitlines() if "warm start: " in line]


def brought(server):
    """The same where there must be one; a busy machine listens before it is over."""
    wait_until(lambda: said(server), 60, "the warm start")
    return said(server)[0]


def test_begins_where_the_last_one_was():
    with Server() as server:
        first, n, cached, _ = ask(server, FIRST)
        equal((cached, said(server)), (0, []))
        second, n2, _, _ = ask(server, SECOND)
        wait_until(lambda: note_of(server), 20, "the note")
        time.sleep(1)
        server.kill()  # a note is left behind each request, not by a good end
        server.start()
        check(brought(server).startswith(f"2 prompts of before, {n + n2 - 2} tokens, "), said(server))
        equal(ask(server, FIRST), (first, n, n - 1, 0))
        equal(ask(server, SECOND), (second, n2, n2 - 1, 0))
        _, n3, cached, from_store = ask(server, FIRST + " And then?")
        check(cached >= n - 4, f"{cached} of {n3}")
        check(from_store < 256, "only what lies in the last page may come from there")


def test_restarts_in_a_row_keep_the_note():
    """What is brought back is one token less than the prompt; the note is not."""
    with Server() as server:
        first, n, _, _ = ask(server, FIRST)
        settle(server)
        for _ in range(3):
            server.start()
            check(brought(server).startswith(f"1 prompt of before, {n - 1} tokens, "), said(server))
            ask(server, "Hi.")  # too short to be noted
            settle(server)
        server.start()
        equal(ask(server, FIRST), (first, n, n - 1, 0))


def test_reproducible_with_and_without():
    """The same texts and log-probabilities, whatever was noted last; and whole steps of the grid come back."""
    with Server("--reproducible", "--batch", "64") as server:
        def answers():
            return [server.complete(p, max_tokens=4, logprobs=3)["choices"] for p in (SECOND, FIRST)]

        expected = answers()
        n = ask(server, FIRST)[1]
        settle(server)
        for options in ([], ["--warm-start", "off"], []):
            server.options = ["--reproducible", "--batch", "64", *options]
            server.start()
            if options:
                equal(said(server), [])
            else:
                check(brought(server).startswith(f"1 prompt of before, {(n - 1) // 64 * 64} tokens, "), said(server))
            equal(answers(), expected)
            settle(server)


def test_all_ways_to_be_warm_agree():
    """Resident, restored by the request, and brought back before it: the same bits, of tokens that make every bit
    count. One sequence: what else is in memory has its part in the bits, and this is about where it came from."""
    prompt = [5000 + i for i in range(300)]
    one = ["--sequences", "1"]

    def answer(server, from_store):
        found = server.complete(prompt, max_tokens=6, logprobs=5)
        equal(found["timings"]["from_store"], from_store)
        return found["choices"][0]

    with Server(*one, "--warm-start", "off") as server:
        cold = answer(server, 0)
        resident = answer(server, 0)
        check(cold != resident, "cut otherwise, which these tokens were to show")
        settle(server)
        equal(note_of(server), None)
        server.start()
        equal(answer(server, 299), resident)
        settle(server)
        server.options = one
        server.start()
        equal((said(server), answer(server, 299)), ([], resident))
        settle(server)
        server.start()
        check(brought(server).startswith("1 prompt of before, 299 tokens"), said(server))
        equal(answer(server, 0), resident)


def test_a_bad_note_costs_nothing_but_the_warm_start():
    with Server() as server:
        first, n, _, _ = ask(server, FIRST)
        settle(server)
        note = note_of(server)
        with open(note, "rb") as f:
            good = f.read()

        def spoil(data):
            with open(note, "wb") as f:
                f.write(data)

        def replace(make):
            os.unlink(note)
            make()

        for bad in (lambda: spoil(good[:-1] + bytes([good[-1] ^ 1])), lambda: spoil(good[:100]),
                    lambda: replace(lambda: os.mkfifo(note)), lambda: replace(lambda: os.mkdir(note))):
            bad()
            server.start()
            equal(said(server), [])
            equal(ask(server, FIRST), (first, n, n - 1, n - 1))
            server.kill()
            if os.path.isdir(note):
                os.rmdir(note)
            elif os.path.lexists(note):
                os.unlink(note)
            spoil(good)
        server.start()
        brought(server)
        equal(ask(server, FIRST), (first, n, n - 1, 0))


def test_what_is_noted_is_verified():
    """A page that went bad is not brought back because of a note."""
    with Server() as server:
        first, n, _, _ = ask(server, FIRST)
        settle(server)
        pages = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(server.cache, "v1"))
                 for name in names if name.endswith(".page")]
        for page in pages:
            with open(page, "r+b") as f:
                f.seek(-1, os.SEEK_END)
                last = f.read(1)
                f.seek(-1, os.SEEK_END)
                f.write(bytes([last[0] ^ 0x40]))
        server.start()
        equal(said(server), [])
        equal(ask(server, FIRST), (first, n, 0, 0))


def test_only_what_fits():
    """A context that is smaller now takes the prompts that fit it, the last one first."""
    with Server(ctx=1024) as server:
        _, n_long, _, _ = ask(server, "Long. " + prompt_of(75, 800))
        first, n, _, _ = ask(server, FIRST)
        check(n_long > 600 > n, (n_long, n))
        settle(server)
        server.ctx = 600
        server.start()
        check(brought(server).startswith(f"1 prompt of before, {n - 1} tokens"), said(server))
        equal(ask(server, FIRST), (first, n, n - 1, 0))
        equal(server.terminate(), 0)
        server.ctx = 1024
        server.options = ["--sequences", "1"]
        server.start()
        check(brought(server).startswith(f"1 prompt of before, {n - 1} tokens"), said(server))


def test_tenants_are_not_noted():
    with tempfile.TemporaryDirectory() as d:
        keys = os.path.join(d, "keys")
        with open(keys, "w") as f:
            f.write("secret-of-alice alice\nsecret-of-bob bob\n")
        os.chmod(keys, 0o600)
        with Server("--api-key-file", keys) as server:
            body = json.dumps({"prompt": FIRST, "max_tokens": 2, "temperature": 0}).encode()
            headers = {"Content-Type": "application/json", "Authorization": "Bearer secret-of-alice"}
            equal(server.request("POST", "/v1/completions", body, headers)[0], 200)
            equal(server.terminate(), 0)
            equal(note_of(server), None)
            server.options = []
            server.start()
            ask(server, SECOND)
            settle(server)
            check(note_of(server) is not None)
            server.options = ["--api-key-file", keys]
            server.start()  # nobody could ask for it
            equal(said(server), [])
    with Server() as server:
        ask(server, FIRST, cache_salt="only mine")
        settle(server)
        equal(note_of(server), None)


def test_encrypted():
    with tempfile.TemporaryDirectory() as d:
        key, other = os.path.join(d, "key"), os.path.join(d, "other")
        for path, byte in ((key, 1), (other, 2)):
            with open(path, "wb") as f:
                f.write(bytes([byte] * 32))
            os.chmod(path, 0o600)
        with Server("--cache-key-file", key) as server:
            tokens = [5000 + i for i in range(300)]
            ask(server, tokens)
            first, n, _, _ = ask(server, tokens)  # cut like the one below: such tokens make every bit count
            settle(server)
            with open(note_of(server), "rb") as f:
                data = f.read()
            check(b"".join(t.to_bytes(4, "little") for t in tokens[:2]) not in data, "a prompt can be read")
            server.options = ["--cache-key-file", other]
            server.start()
            equal(said(server), [])
            server.kill()
            server.options = ["--cache-key-file", key]
            server.start()
            brought(server)
            equal(ask(server, tokens), (first, n, n - 1, 0))


def test_wrong_values():
    with tempfile.TemporaryDirectory() as d:
        for value in ("yes", "", "1"):
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--cache-dir", d, "--warm-start", value],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
            equal(done.returncode, 2)
            check(b"--warm-start must be on or off" in done.stderr, done.stderr)


main([test_begins_where_the_last_one_was, test_restarts_in_a_row_keep_the_note,
      test_reproducible_with_and_without, test_all_ways_to_be_warm_agree,
      test_a_bad_note_costs_nothing_but_the_warm_start, test_what_is_noted_is_verified, test_only_what_fits,
      test_tenants_are_not_noted, test_encrypted, test_wrong_values])
