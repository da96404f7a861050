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
        server.options = ["--warm-start", "off"]  # it comes from the disk, by the request
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
        for page in pages_of(server.cache):
            flip_last_byte(page)
        server.start()
        equal(server.complete(PROMPT, max_tokens=4)["choices"][0]["text"], expected)
        check("a page was bad and is in quarantine: " in server.log(), server.log())
        equal(server.terminate(), 0)


def test_smaller_while_it_runs():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "disk")

        def write(text):
            with open(path, "w") as f:
                f.write(text)

        write("nonsense")
        tool("serve", "-m", MODEL, "--cache-disk", "@" + path, expect=2)
        tool("serve", "-m", MODEL, "--cache-disk", "@" + path + ".none", expect=2)
        write("100M\n")
        with Server("--cache-disk", "@" + path, "--cache-write-per-day", "10G") as server:
            check("at most 100 MiB" in server.log(), server.log())
            for i in range(2):
                server.complete(prompt_of(60, 1000 * i), max_tokens=1)
                await_pages(server.cache)
            check(disk_bytes(server.cache) > 12 << 20, disk_bytes(server.cache))
            write("7M")
            os.kill(server.process.pid, signal.SIGHUP)
            wait_until(lambda: disk_bytes(server.cache) <= 7 << 20, 30, "a smaller cache")
            check("SIGHUP: cache on disk: at most 7 MiB from now on" in server.log(), server.log())
            wait_until(lambda: "MiB were evicted: it had more than the 7 MiB" in server.log(), 10, "what was evicted")
            for n, text in enumerate(("a lot", "30M" + 70 * " " + "junk", "40M\0junk")):
                write(text)
                os.kill(server.process.pid, signal.SIGHUP)
                wait_until(lambda: server.log().count("the cache's size stays as it is") == n + 1, 10, "a refusal")
            os.unlink(path)
            os.mkfifo(path)  # nobody writes into it, and the server must not wait for that
            os.kill(server.process.pid, signal.SIGHUP)
            wait_until(lambda: "is not a regular file; the cache's size stays" in server.log(), 10, "a FIFO refused")
            answer = server.complete(prompt_of(60, 1000), max_tokens=1)
            check(disk_bytes(server.cache) <= 7 << 20, disk_bytes(server.cache))
            check(cached(answer) > 0)
            equal(server.terminate(), 0)
            equal(verify(server.cache)["n_problems"], 0)


def test_what_is_said():
    with Server("--cache-reserve", "4000T") as server:
        log = server.log()
        check("nothing is stored" in log and "smaller than that" in log, log)
        server.complete(PROMPT, max_tokens=1)
        equal(log.count("nothing is stored"), server.log().count("nothing is stored"), "said again")
        equal(pages_of(server.cache), [])
    with Server("--cache-disk", "1M") as server:
        server.complete(PROMPT, max_tokens=1)
        wait_until(lambda: "one page takes" in server.log(), 20, "a budget that no page fits")
        server.complete(prompt_of(60, 700), max_tokens=1)
        equal(server.log().count("one page takes"), 1)
        equal(pages_of(server.cache), [])
    with Server("--cache-write-per-day", "5M") as server:
        server.complete(PROMPT, max_tokens=1)
        server.complete(prompt_of(60, 700), max_tokens=1)
        wait_until(lambda: "midnight" in server.log(), 20, "the day's bytes")
        equal(server.log().count("midnight"), 1)
        shutil.rmtree(server.cache, ignore_errors=True)
        server.complete(prompt_of(60, 900), max_tokens=1)
        wait_until(lambda: "was removed" in server.log(), 20, "a line")
        check(server.log().count("was removed") <= 2, server.log())  # the server may be in between file and folder
        check(os.path.exists(os.path.join(server.cache, "CAIRN")))


need_model()
main([test_usage, test_beside_a_server, test_finds_and_repairs, test_smaller_while_it_runs, test_what_is_said])
