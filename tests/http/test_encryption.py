"""--cache-key-file: which files are keys, and that a key finds its own pages alone."""
from cairn_http import *

PROMPT = "Nobody but the owner reads this. " + prompt_of(5)  # short: computed four times
KEY_A, KEY_B = bytes(range(200, 232)), bytes(range(100, 132)).hex().encode() + b"\n"


def write_key(folder, name, data, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
    return path


def refused(word, path, *command):
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as home:
        command = command or ("serve", "-m", MODEL, "--port", "0", "--cache-dir", os.path.join(home, "cache"))
        done = subprocess.run([PROGRAM, *command, "--cache-key-file", path], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=60, env=environment(home))
        check(not os.path.exists(os.path.join(home, "cache")), "a cache was made before the key was read")
    last = done.stderr.decode().strip().splitlines()[-1]
    equal((done.returncode, done.stdout), (2, b""), path, done.stderr)
    check(last.startswith("cairn: --cache-key-file ") and word in last, f"no {word!r} in", last)


def test_what_is_no_key():
    with tempfile.TemporaryDirectory() as d:
        good = write_key(d, "good", KEY_A)
        refused("can't be opened", os.path.join(d, "missing"))
        refused("not a regular file", d)
        os.mkfifo(os.path.join(d, "fifo"), 0o600)
        refused("not a regular file", os.path.join(d, "fifo"))
        os.symlink(good, os.path.join(d, "link"))
        refused("symbolic link", os.path.join(d, "link"))
        for mode in (0o640, 0o604, 0o620, 0o602, 0o610):
            refused("chmod 600", write_key(d, f"open-{mode:o}", KEY_A, mode))
        if os.geteuid() == 0:
            other = write_key(d, "other", KEY_A)
            os.chown(other, 65534, 65534)
            refused("belongs to user 65534", other)
        bad = {"empty": b"", "short": KEY_A[:31], "long": KEY_A + b"\n", "hex-16": b"ab" * 16, "hex-63": b"a" * 63,
               "hex-65": b"a" * 65, "hex-crlf": b"a" * 64 + b"\r\n", "hex-2-lines": b"a" * 64 + b"\n\n",
               "no-hex": b"g" * 64, "password": b"correct horse battery staple ab\n", "zeros": bytes(32),
               "hex-zeros": b"0" * 64, "large": b"a" * 129}
        for name, data in bad.items():
            refused({"empty": "empty", "large": "too large"}.get(name, "openssl rand"), write_key(d, name, data))
        refused("openssl rand", os.path.join(d, "short"), "verify", "--cache-dir", d)


def cached(server):
    """Tokens that came from disk; the model must have been hashed, else nothing could."""
    wait_until(lambda: server.log().count("disk cache on") > cached.starts, 60, "the weights digest")
    cached.starts += 1
    timings = server.complete(PROMPT, max_tokens=2)["timings"]
    if timings["from_store"] == 0:
        equal(timings["miss"], "never seen")
    return timings["from_store"]


def namespaces(server):
    """How many pages each namespace holds. A short page gives way to a longer one, so which they are changes."""
    count = {}
    for folder, _, names in os.walk(os.path.join(server.cache, "v1")):
        n = sum(name.endswith(".page") for name in names)
        space = os.path.relpath(folder, server.cache).split(os.sep)[1:2]
        if n:
            count[space[0]] = count.get(space[0], 0) + n
    return count


def restart(server, key):
    server.kill()
    server.options = ["--cache-key-file", key] if key else []
    server.start()


def test_a_key_finds_its_own_pages():
    cached.starts = 0
    with tempfile.TemporaryDirectory() as d:
        a, b = write_key(d, "a", KEY_A), write_key(d, "b", KEY_B)
        with Server("--cache-key-file", a) as server:
            equal(cached(server), 0)
            check("(encrypted)" in server.log())
            wait_until(lambda: len(namespaces(server)) == 1, 20, "the page to be published")
            time.sleep(0.5)
            first = namespaces(server)
            restart(server, a)
            n = cached(server)
            check(n > 30, "only", n)
            restart(server, b)
            equal(cached(server), 0, "another key")
            wait_until(lambda: len(namespaces(server)) == 2, 20, "its page to be published")
            restart(server, None)
            equal(cached(server), 0, "no key")
            wait_until(lambda: len(namespaces(server)) == 3, 20, "pages of two keys and of none")
            time.sleep(0.5)
            restart(server, a)
            equal(cached(server), n, "the first key again")
            equal(os.listdir(os.path.join(server.cache, "quarantine")), [])
            server.kill()
            left = namespaces(server)
            check(set(first) <= set(left), "pages of the first key are gone")
            n_own = left[list(first)[0]]
            for key in (None, a, b):
                command = [PROGRAM, "verify", "--deep", "--json", "--cache-dir", server.cache]
                done = subprocess.run(command + (["--cache-key-file", key] if key else []), capture_output=True,
                                      timeout=60, env=environment(d))
                report = json.loads(done.stdout)
                equal((done.returncode, report["n_problems"]), (0, 0), report)
                if key == b:
                    equal(report["sealed_pages"], n_own, "pages that another key sealed")
                elif key is None:
                    n_sealed = report["sealed_pages"]
                else:
                    equal(report["sealed_pages"], n_sealed - n_own, "pages of the other key")


need_model()
main([test_what_is_no_key, test_a_key_finds_its_own_pages])
