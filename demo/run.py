#!/usr/bin/env python3
"""The demo: an agent's prompt survives the death of the server.

    python3 demo/run.py CAIRN MODEL.gguf [--ctx 8192]

A coding agent's system prompt and tool schemas (demo/system.md, demo/tools.json)
are sent with four questions:

    A  first question, empty cache: everything is computed
    B  a new session, same system prompt and tools, another question
       SIGKILL; the process and the port are gone; a new process is started
    C  a third question: the shared prefix comes back from the disk
    A  the first question once more: all but the last token comes back

The demo fails unless C's cached_tokens is the whole shared prefix, to the
token. How long that prefix is, it knows in two ways: B, which is served by the
cells of the same process, shares as much with A as C does, because all
questions begin with different words; and the number of tokens that a prompt
ends with after the prefix can be counted by sending just them.

The cache root is a folder of the demo's own and is emptied at the start. No
process is left behind, however the demo ends."""
import argparse
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
from lib import Cairn, Failure, Progress, post, run_main, stream, table, tail, tree_bytes  # noqa: E402

# Each begins with another word: the prompts part right there.
QUESTION_A = "Why does the test suite fail when the time zone is Pacific/Auckland?"
QUESTION_B = "Rename the function getUser to fetchUser in the whole repository."
QUESTION_C = "Explain in two sentences what the list command does."
MAX_TOKENS = 32


def demo_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "cairn-demo")


def empty_root(folder):
    """A new, empty cache root in the demo's folder. Only what a demo left is removed."""
    root = os.path.join(folder, "root")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.islink(root) or (os.path.exists(root) and not os.path.isdir(root)):
        raise Failure(f"{root} is not a folder; remove it and start the demo again")
    if os.path.isdir(root):
        if os.listdir(root) and not os.path.isfile(os.path.join(root, "CAIRN")):
            raise Failure(f"{root} holds files that are not Cairn's; move them away and start the demo again")
        shutil.rmtree(root)
    log = os.path.join(folder, "cairn.log")
    if os.path.exists(log):
        os.unlink(log)
    return root


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def ask(server, question, label):
    body = {"model": "demo",
            "messages": [{"role": "system", "content": load("system.md")}, {"role": "user", "content": question}],
            "tools": json.loads(load("tools.json")), "temperature": 0, "max_tokens": MAX_TOKENS,
            "stream_options": {"include_usage": True}}
    with Progress(label) as progress:
        answer = stream(server, "/v1/chat/completions", body, on_prefill=progress.note)
    if answer.cached_tokens is None:
        raise Failure("the answer has no usage.prompt_tokens_details.cached_tokens")
    return answer


def tail_tokens(server, question):
    """How many tokens follow the shared prefix, in a ChatML template."""
    body = {"prompt": question + "<|im_end|>\n<|im_start|>assistant\n", "max_tokens": 1, "temperature": 0}
    return post(server, "/v1/completions", body)["usage"]["prompt_tokens"]


def start(program, model, folder, root, ctx, label):
    with Progress(label):
        server = Cairn(program, model, folder, ["--cache-dir", root, "--ctx", str(ctx)])
        server.wait_ready()
    return server


def check(server, a, b, c, again):
    """Every promise of the demo; raises Failure."""
    shared = b.cached_tokens
    counted = {q: answer.prompt_tokens - tail_tokens(server, q)
               for q, answer in ((QUESTION_A, a), (QUESTION_B, b), (QUESTION_C, c))}
    if len(set(counted.values())) == 1 and shared != counted[QUESTION_B]:
        raise Failure(f"B: {shared} tokens came from the cells of the same process, "
                      f"but the prompts share {counted[QUESTION_B]}")
    if a.cached_tokens != 0:
        raise Failure(f"A began with {a.cached_tokens} cached tokens although the cache root was empty")
    if c.cached_tokens != shared:
        raise Failure(f"C restored {c.cached_tokens} tokens after the restart, but the shared prefix has {shared}")
    if again.cached_tokens != again.prompt_tokens - 1:
        raise Failure(f"A once more restored {again.cached_tokens} of {again.prompt_tokens} tokens; "
                      "all but the last were expected")
    if again.text != a.text:
        sys.stderr.write("note: A's two answers differ; the bits of a model's numbers depend on how a prompt is cut\n"
                         "      (start the server with --reproducible for answers that never depend on the cache)\n")
    return shared


def run(program, model, ctx):
    folder = demo_folder()
    root = empty_root(folder)
    server = start(program, model, folder, root, ctx, "starting cairn, empty cache")
    a = ask(server, QUESTION_A, "A: first question, cold (one to three minutes on two cores)")
    b = ask(server, QUESTION_B, "B: new session, same system prompt, other question")
    pid = server.pid
    server.kill()
    if not server.is_gone():
        raise Failure(f"process {pid} or its port {server.port} is still there after SIGKILL")
    print(f"SIGKILL: process {pid} is gone, port {server.port} refuses", file=sys.stderr)
    server = start(program, model, folder, root, ctx, "starting a new process")
    c = ask(server, QUESTION_C, "C: third question, after the restart")
    again = ask(server, QUESTION_A, "A: first question again")
    report((("A, cold", a), ("B, new session, same process", b), ("C, after SIGKILL, other question", c),
            ("A, after SIGKILL, same question", again)))
    shared = check(server, a, b, c, again)
    server.terminate()
    print(f"""
The shared prefix has {shared:,} tokens; C restored all of them from the disk.
Cache root: {root} ({tree_bytes(root) / 1e6:.1f} MB on the disk)

Start the server yourself (add --cache-dir {root} to begin with this cache):
  {program} serve -m {model} --ctx {ctx} --port 8080
and ask it:
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Hello!"}}], "max_tokens": 32}}'""")
    return 0


def report(rows):
    cold = rows[0][1].ttft
    print(flush=True)
    table(("scenario", "TTFT", "cached_tokens", "of prompt_tokens", "ratio to cold"),
          [(name, f"{r.ttft:.3f} s", r.cached_tokens, r.prompt_tokens,
            "1" if r is rows[0][1] else f"1/{cold / r.ttft:.0f}") for name, r in rows])


def main():
    parser = argparse.ArgumentParser(description="Shows that a prompt survives the death of the server.")
    parser.add_argument("program", metavar="CAIRN", help="the program, for example build/cairn")
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--ctx", type=int, default=8192, help="context size in tokens (default 8192)")
    args = parser.parse_args()
    for path in (args.program, args.model):
        if not os.path.isfile(path):
            raise Failure(f"{path}: no such file")
    try:
        return run(os.path.abspath(args.program), os.path.abspath(args.model), args.ctx)
    except Failure as failure:
        log = os.path.join(demo_folder(), "cairn.log")
        raise Failure(f"{failure}\nthe server's log is {log}" + (", it ends with\n" + tail(log, 800)
                      if os.path.exists(log) else "")) from None


if __name__ == "__main__":
    run_main(main)
