"""API keys and tenants: who may ask, and that nobody is served from what another's
prompts left - not in memory, not on disk, not in what usage and timings say."""
from cairn_http import *

KEYS = """# the team
sk-anna-1 anna
sk-anna-2  anna

sk-bert\tbert
"""
PROMPT = "The rules of the house: " + prompt_of(6)  # short: it is computed cold for every salt


class Tenants(Server):
    """A server with the keys above; `as_` sends one of them."""

    def __init__(self, *options, keys=KEYS, **more):
        folder = tempfile.mkdtemp(prefix="cairn-test-")
        path = os.path.join(folder, "keys")
        with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            f.write(keys)
        try:
            super().__init__("--api-key-file", path, *options, folder=folder, **more)
        finally:
            self.owns_folder = True

    def as_(self, key, path="/v1/completions", header="Authorization", **fields):
        """(status, parsed answer)"""
        body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 2}
        body.update(fields)
        headers = {header: "Bearer " + key if header == "Authorization" else key}
        status, _, answer = self.request("POST", path, json.dumps(body).encode(), headers)
        return status, json.loads(answer)


def cached(server, key, **fields):
    """(prompt tokens, cached tokens); timings say the same and know of no other's."""
    status, answer = server.as_(key, **fields)
    equal(status, 200, answer)
    usage, timings = answer["usage"], answer["timings"]
    n = usage["prompt_tokens_details"]["cached_tokens"]
    equal((timings["cached_n"], timings["prompt_n"]), (n, usage["prompt_tokens"] - n))
    if n == 0:
        equal((timings["from_store"], timings["restored_bytes"], timings["miss"]), (0, 0, "never seen"))
    return usage["prompt_tokens"], n


def warm(server, key, **fields):
    n, n_cached = cached(server, key, **fields)
    equal(n_cached, n - 1, key, fields)


def cold(server, key, **fields):
    equal(cached(server, key, **fields)[1], 0, key, fields)


def identities_with_pages(server):
    root = os.path.join(server.cache, "v1")
    return sum(any(name.endswith(".page") for _, _, names in os.walk(os.path.join(root, one)) for name in names)
               for one in os.listdir(root))


def settled(server):
    wait_until(lambda: "disk cache on" in server.log(), 60, "the weights digest")


def test_no_reuse_across_tenants():
    with Tenants(ctx=2048) as server:
        settled(server)
        cold(server, "sk-anna-1")
        warm(server, "sk-anna-2")  # two keys, one tenant
        cold(server, "sk-bert")
        warm(server, "sk-bert")
        cold(server, "sk-anna-1", cache_salt="x")  # a salt narrows ...
        warm(server, "sk-anna-2", cache_salt="x")
        cold(server, "sk-bert", cache_salt="anna")  # ... and never leads to another tenant
        warm(server, "sk-anna-1", user="sk-bert", metadata={"cache_salt": "x"})  # these are no salts
        wait_until(lambda: identities_with_pages(server) == 4, 60, "a page for each salt")
        server.kill()
        server.start()
        settled(server)
        cold(server, "sk-anna-1", cache_salt="y")
        for key, fields in (("sk-bert", {}), ("sk-anna-1", {}), ("sk-anna-2", {"cache_salt": "x"}),
                            ("sk-bert", {"cache_salt": "anna"})):
            warm(server, key, **fields)
        log = server.log()
        for word in ("sk-", "anna", "bert", "the team"):
            check(word not in log, f"{word!r} is in the log")


def test_streams_tell_nothing_either(server):
    """Progress begins where the tenant's own prefix ends."""
    cold(server, "sk-anna-1")
    body = json.dumps({"prompt": PROMPT, "temperature": 0, "max_tokens": 1, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    for done in (0, None):
        status, _, data = server.request("POST", "/v1/completions", body, {"Authorization": "Bearer sk-bert"})
        equal(status, 200)
        lines = data.decode().splitlines()
        usage = json.loads(next(line for line in lines if '"usage"' in line)[6:])["usage"]
        n = usage["prompt_tokens"]
        done = n - 1 if done is None else done
        equal(usage["prompt_tokens_details"]["cached_tokens"], done)
        equal(next(line for line in lines if line.startswith(": prefill ")), f": prefill {done}/{n}")


def test_reproducible_too():
    """With one sequence, which the other tenant's request takes over."""
    prompt = prompt_of(13)
    with Tenants("--reproducible", "--batch", "64") as server:
        settled(server)
        answers = []
        for key in ("sk-anna-1", "sk-bert"):
            cold(server, key, prompt=prompt)
            n, n_cached = cached(server, key, prompt=prompt)
            equal(n_cached, (n - 1) // 64 * 64)
            answers.append(server.as_(key, prompt=prompt, max_tokens=8)[1]["choices"][0]["text"])
        equal(answers[0], answers[1])


def test_salts_without_keys():
    with Server() as server:
        def n_cached(**fields):
            return server.complete(PROMPT, max_tokens=1, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]

        equal(n_cached(), 0)
        equal(n_cached(cache_salt="a"), 0)
        equal(n_cached(cache_salt="b"), 0)
        check(n_cached(cache_salt="a") > 0 and n_cached() > 0 and n_cached(cache_salt=None) > 0)
        status, _, body = server.request("GET", "/v1/models", headers={"Authorization": "Bearer anything"})
        equal(status, 200, body)
        for value, code in ((5, "invalid_type"), (5.5, "invalid_type"), (True, "invalid_type"), ([], "invalid_type"),
                            ({}, "invalid_type"), ("", "invalid_value")):
            for path, fields in (("/v1/completions", {"prompt": "hi"}),
                                 ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})):
                status, answer = server.post(path, {**fields, "cache_salt": value})
                error = answer["error"]
                equal((status, error["param"], error["code"]), (400, "cache_salt", code), value)


def test_who_may_ask(server):
    for headers in ({}, {"Authorization": "Bearer sk-eve"}, {"Authorization": "sk-bert"},
                    {"Authorization": "Basic c2stYmVydA=="}, {"Authorization": "Bearer"}, {"x-api-key": "sk-eve"},
                    {"Authorization": "Bearer sk-eve", "x-api-key": "sk-bert"}, {"Authorization": "Bearer # the team"},
                    {"x-api-key": "sk-bert, sk-bert"}, {"Authorization": "Bearer " + "x" * 9000}):
        for method, path in (("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("GET", "/v1/models"),
                             ("GET", "/v1/models/x"), ("GET", "/"), ("GET", "/nothing"), ("PUT", "/v1/models")):
            status, got, body = server.request(method, path, b"{" if method == "POST" else None, headers)
            equal((status, got["WWW-Authenticate"]), (401, "Bearer"), method, path, headers)
            error = json.loads(body)["error"]
            equal((error["type"], error["param"], error["code"]), ("invalid_request_error", None, "invalid_api_key"))
            check("sk-" not in error["message"])
    for header in ("Authorization", "x-api-key"):
        equal(server.as_("sk-bert", header=header, prompt="Hi")[0], 200)
    for header in ({"Authorization": "bearer  sk-bert"}, {"X-API-KEY": "sk-anna-2"}):
        equal(server.request("GET", "/v1/models", headers=header)[0], 200)
        equal(server.request("HEAD", "/", headers=header)[0], 200)
    for method in ("GET", "HEAD"):
        equal(server.request(method, "/health")[0], 200)
    check("asks for one of 3 API keys" in server.log() and "sk-" not in server.log())


def test_a_stranger_is_refused_before_the_body(server):
    """The answer comes while the body is still to be sent, and nothing is computed."""
    for length in ("Content-Length: 1000000", "Transfer-Encoding: chunked"):
        with server.connect(timeout=10) as s:
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-eve\r\n{length}\r\n\r\n".encode())
            answer = s.recv(65536)
            equal(status_of(answer), 401)
            check(b"Connection: close" in answer, answer)
    twice = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-bert\r\n"
    equal(status_of(raw_exchange(server, twice + b"Connection: close\r\n\r\n")), 200)
    answer = raw_exchange(server, twice + b"Authorization: Bearer sk-bert\r\nConnection: close\r\n\r\n")
    equal(status_of(answer), 401)
    check("request 1:" not in server.log(), "something reached the engine")
    equal(server.as_("sk-bert", prompt="Hi")[0], 200)
    check("request 1:" in server.log())


def test_requests():
    """One server for what needs no store; the first of them wants it fresh."""
    with Tenants(ctx=512) as server:
        settled(server)
        for test in (test_a_stranger_is_refused_before_the_body, test_who_may_ask, test_streams_tell_nothing_either):
            test(server)


def test_bad_key_files():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "keys")

        def refused(part, text="sk-1 anna\n", mode=0o600, given=path):
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, mode)
            done = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0", "--cache-disk", "off", "--api-key-file",
                                   given], capture_output=True, text=True, timeout=60, env=environment(d))
            equal(done.returncode, 2, done.stderr)
            lines = done.stderr.strip().splitlines()
            equal(len(lines), 1, done.stderr)
            check(lines[0].startswith("cairn: ") and part in lines[0] and "sk-" not in lines[0], part, lines)

        refused("chmod 600", mode=0o640)
        refused("chmod 600", mode=0o604)
        refused("can't be opened", given=os.path.join(d, "none"))
        refused("not a regular file", given=d)
        os.symlink(path, os.path.join(d, "link"))
        refused("not a symbolic link", given=os.path.join(d, "link"))
        refused("empty", text="")
        refused("no key", text="# none\n")
        refused("line 2: there is one word", text="sk-1 anna\nsk-2\n")
        refused("line 3: this key", text="sk-1 anna\n\nsk-1 bert\n")


main([test_no_reuse_across_tenants, test_reproducible_too, test_salts_without_keys, test_requests, test_bad_key_files])
