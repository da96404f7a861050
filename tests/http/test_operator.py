"""The operator's tools on a real cache, beside a running server and without one."""
from cairn_http import *

PROMPT = prompt_of(60)


def tool(*arguments, expect=0):
    """(stdout, stderr) of `cairn ARGUMENTS`, whose exit code must be `expect`."""
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as home:
        done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=environment(home))
    equal(done.returncode, expect, arguments, done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


def verify(cache, *options, expect=0):
    return json.loads(tool("verify", "--cache-dir", cache, "--json", *options, expect=expect)[0])


def disk_bytes(folder):
    total = os.lstat(folder).st_blocks * 512
    for base, folders, files in os.walk(folder):
        for name in folders + files:
            total += os.lstat(os.path.join(base, name)).st_blocks * 512
    return total


def pages_of(cache):
    return sorted(os.path.join(base, name) for base, _, files in os.walk(os.path.join(cache, "v1")) for name in files
                  if name.endswith(".page"))


def await_pages(cache):
    """Until there are pages, and for a second no other ones: what was queued is written."""
    seen, since = None, 0
    deadline = time.monotonic() + 30
    while not seen or time.monotonic() - since < 1:
        check(time.monotonic() < deadline, "the pages do not come to rest:", seen)
        now = pages_of(cache)
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)


def flip_last_byte(path):
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_END)
        f.write(bytes([byte ^ 1]))


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_usage():
    with tempfile.TemporaryDirectory() as d:
        for command in ("verify", "clear", "prune"):
            size = ("--to", "1G") if command == "prune" else ()
            check("usage: cairn " + command in tool(command, "--help")[0])
            check("usage: cairn " + command in tool("help", command)[0])
            for arguments in ((command, "--bogus"), (command, *size, "--cache-dir"), (command, *size, "more"),
                              (command, *size, "--cache-dir", d), (command, *size, "--cache-dir", d + "/none"),
                              (command, *size)):
                out, err = tool(*arguments, expect=2)
                check(out == "" and err.startswith("cairn: ") and len(err.splitlines()) == 1, arguments, err)
        equal(os.listdir(d), [], "a folder that is no cache was written to")
        for arguments in (("prune",), ("prune", "--to", "lots"), ("clear", "--deep"), ("verify", "--to", "1G"),
                          ("help", "nothing")):
            tool(*arguments, expect=2)


def test_beside_a_server():
    with Server() as server:
        server.complete(PROMPT, max_tokens=4)
        await_pages(server.cache)
        report = verify(server.cache, "--deep")
        equal((report["ok"], report["n_problems"], report["identities"]), (True, 0, 1), report)
        equal(report["pages"], len(pages_of(server.cache)))
        equal(report["digests"], 1)
        check(report["read_bytes"] > 0)
        equal(report["used_bytes"], disk_bytes(server.cache))
        equal(report["ledger"]["used_bytes"], report["used_bytes"], "ledger")
        out, _ = tool("verify", "--cache-dir", server.cache)
        check("all is well" in out, out)

        out, _ = tool("prune", "--cache-dir", server.cache, "--to", "1G")
        check("0 pages evicted" in out, out)
        out, err = tool("prune", "--cache-dir", server.cache, "--to", "0", expect=1)
        check("as small as" in err, err)
        equal(pages_of(server.cache), [])
        server.complete("Another one. " + prompt_of(60, 500), max_tokens=4)  # evicts nothing of itself
        await_pages(server.cache)

        out, _ = tool("clear", "--cache-dir", server.cache)
        check("removed" in out and "freed" in out, out)
        equal(pages_of(server.cache), [])
        first = server.complete(PROMPT, max_tokens=4)  # resident: the server itself forgot nothing
        await_pages(server.cache)
        equal(verify(server.cache, "--deep")["n_problems"], 0)
        server.kill()
        server.start()
        again = server.complete(PROMPT, max_tokens=4)
        check(cached(again) > 300, again["usage"])
        equal(again["choices"][0]["text"], first["choices"][0]["text"])
        check(again["timings"]["from_store"] > 300, again["timings"])
        equal(server.terminate(), 0)
        equal(verify(server.cache, "--deep")["n_problems"], 0)


def test_finds_and_repairs():
    with Server() as server:
        expected = server.complete(PROMPT, max_tokens=4)["choices"][0]["text"]
        equal(server.terminate(), 0)
        flip_last_byte(pages_of(server.cache)[0])
        equal(verify(server.cache)["n_problems"], 0)  # a block is looked at only when asked for
        report = verify(server.cache, "--deep", "--dry-run", expect=1)
        equal((report["problems"]["bad_block"], report["n_repaired"]), (1, 0), report)
        out, _ = tool("verify", "--cache-dir", server.cache, "--deep", expect=1)
        check("bad_block: v1/" in out and "(repaired)" in out and "1 problems, 1 repaired" in out, out)
        report = verify(server.cache, "--deep")
        equal((report["n_problems"], report["quarantine"]["files"]), (0, 1), report)
        server.start()
        equal(server.complete(PROMPT, max_tokens=4)["choices"][0]["text"], expected)
        equal(server.terminate(), 0)


need_model()
main([test_usage, test_beside_a_server, test_finds_and_repairs])
