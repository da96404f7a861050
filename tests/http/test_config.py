"""The command line: what is wrong is said in one line, exit code 2."""
from cairn_http import *


def run_program(*arguments, timeout=60):
    """(exit code, stdout, stderr)"""
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as home:
        done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                              env=environment(home))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(word, *arguments):
    """Exit code 2; the last line on stderr begins with our name and holds the word."""
    code, out, err = run_program(*arguments)
    last = err.strip().splitlines()[-1] if err.strip() else ""
    equal((code, out), (2, ""), arguments, err)
    check(last.startswith("cairn: "), arguments, "->", last)
    check(word in last, f"no {word!r} in", last)
    equal(len([line for line in err.splitlines() if line.startswith("cairn: ")]), 1, err)


def serve(word, *arguments, model=None):
    refused(word, "serve", "-m", model or MODEL, "--port", "0", *arguments)


def test_help_and_version():
    code, out, err = run_program("--version")
    equal((code, err), (0, ""))
    check(out.startswith("cairn 0."), out)
    for arguments in (("help",), ("--help",), ("-h",), ("help", "serve"), ("serve", "--help"), ("serve", "-h")):
        code, out, err = run_program(*arguments)
        equal((code, err), (0, ""), arguments)
        check("usage: cairn" in out, arguments)
    code, out, err = run_program()
    equal((code, out), (2, ""))
    check("usage:" in err)


def test_words_and_options():
    refused("unknown command", "sreve")
    refused("no model", "serve")
    refused("--bogus", "serve", "--bogus")
    refused("-z", "serve", "-z")
    refused("needs a value", "serve", "-m")
    refused("not an option", "serve", "model.gguf")
    for option, value in (("--port", "70000"), ("--port", "x"), ("--port", "-1"), ("--port", ""), ("--ctx", "0"),
                          ("--ctx", "1e3"), ("--batch", "0"), ("--threads", "none"), ("--sequences", "0"),
                          ("--gpu-layers", "-2"), ("--flash-attn", "maybe"), ("--cache-type-k", "q3"),
                          ("--cache-type-v", "F16"), ("--cache-disk", "lots"), ("--cache-disk", "-5G"),
                          ("--cache-disk", "5X"), ("--cache-disk", "0"), ("--cache-disk", "1e99G"), ("--max-body", "0"),
                          ("--max-body", "big"), ("--cache-reserve", "x"),
                          ("--cache-disk", "@"), ("--cache-disk", "@/nowhere/at/all"), ("--cache-write-per-day", "0"),
                          ("--cache-write-per-day", "much"), ("--grace", "-1"), ("--read-timeout", "0")):
        refused(option, "serve", "-m", "x.gguf", option, value)


def test_bad_models():
    with tempfile.TemporaryDirectory() as d:
        def file(name, data):
            path = os.path.join(d, name)
            with open(path, "wb") as f:
                f.write(data)
            return path

        serve("can't be opened", model=os.path.join(d, "missing.gguf"))
        serve("not a GGUF", model=file("text.gguf", b"hello, this is no model"))
        serve("not a GGUF", model=file("empty.gguf", b""))
        serve("not a file", model=d)
        serve("", model=file("cut.gguf", b"GGUF\x03\x00\x00\x00"))
        with open(MODEL, "rb") as f:
            serve("", model=file("half.gguf", f.read(1 << 20)))
        if os.geteuid() != 0:
            path = file("secret.gguf", b"GGUF")
            os.chmod(path, 0)
            serve("can't be opened", model=path)


def test_bad_cache_roots():
    with tempfile.TemporaryDirectory() as d:
        plain = os.path.join(d, "file")
        with open(plain, "w") as f:
            f.write("x")
        serve(plain, "--cache-dir", plain)
        foreign = os.path.join(d, "foreign")
        os.mkdir(foreign)
        with open(os.path.join(foreign, "letter.txt"), "w") as f:
            f.write("mine")
        serve(foreign, "--cache-dir", foreign)
        with open(os.path.join(foreign, "letter.txt")) as f:
            equal(f.read(), "mine", "a foreign file was touched")
        equal(os.listdir(foreign), ["letter.txt"])
        link = os.path.join(d, "link")
        os.mkdir(os.path.join(d, "target"))
        os.symlink(os.path.join(d, "target"), link)
        serve(link, "--cache-dir", link)
        serve("/dev/null/x", "--cache-dir", "/dev/null/x")
        serve("/proc/nothing", "--cache-dir", "/proc/nothing")


def test_addresses():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        refused("in use", "serve", "-m", MODEL, "--port", str(taken.getsockname()[1]), "--cache-disk", "off")
    serve("", "--host", "no.such.host.invalid")
    serve("", "--host", "203.0.113.7")  # not an address of this machine


def test_templates_and_files():
    with tempfile.TemporaryDirectory() as d:
        serve("can't be read", "--chat-template-file", os.path.join(d, "none"), "--cache-disk", "off")
        path = os.path.join(d, "bad.jinja")
        with open(path, "w") as f:
            f.write("{% for x in %}")
        serve("template", "--chat-template-file", path, "--cache-disk", "off", "--ctx", "256")
        serve("--port-file", "--port-file", os.path.join(d, "no", "port"), "--cache-disk", "off", "--ctx", "256")


def test_model_and_options_that_do_not_fit():
    serve("", "--cache-type-v", "q8_0", "--flash-attn", "off", "--cache-disk", "off", "--ctx", "256")


def test_a_wide_address_warns():
    with Server("--host", "0.0.0.0", ctx=256) as server:
        check("warning" in server.log() and "key" in server.log(), server.log())
    with Server(ctx=256) as server:
        check("warning" not in server.log(), server.log())
        log = server.log()
        for word in (server.cache, "256 MiB", "--cache-disk off", "listening on http://127.0.0.1:%d" % server.port):
            check(word in log, f"no {word!r} in the start-up lines")


def test_own_template():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "plain.jinja")
        with open(path, "w") as f:
            f.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                    "{% if add_generation_prompt %}assistant:{% endif %}")
        with Server("--chat-template-file", path, ctx=256) as server:
            own = server.chat("Hello", max_tokens=1)["usage"]["prompt_tokens"]
            equal(own, server.complete("user: Hello\nassistant:", max_tokens=1)["usage"]["prompt_tokens"])


need_model()
main([test_help_and_version, test_words_and_options, test_bad_models, test_bad_cache_roots, test_addresses,
      test_templates_and_files, test_model_and_options_that_do_not_fit, test_a_wide_address_warns, test_own_template])
