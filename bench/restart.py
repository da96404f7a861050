#!/usr/bin/env python3
"""bench/restart: time to the first token after SIGKILL, beside cold, warm, and llama-server by hand.

    python3 bench/restart.py [--cairn PROGRAM] [--model FILE] [--llama-server PROGRAM]
                             [--tokens 7500] [--pairs 5] [--json FILE]

Real processes, the same token ids to both servers, times at the client from the
request sent to the first token in the stream, medians over the pairs. In each
pair, on an empty cache root (one pair is everything below, once):

    cold                 nothing cached
    same process, ...    the same prompt again; then with another tail
    restart, ...         SIGKILL, new process, first request as soon as /health says
                         ok; each row in a process of its own; the other tail is one
                         that no process has seen
    no warm start, ...   the same with --warm-start off: the request itself restores
    no digest cache      as restart, ROOT/digests deleted: the weights are hashed again

and beside it llama-server by hand: cold, slot save, same process; then restart,
slot restore, request. "From exec" is process start to first token, model load
included, and for llama-server the restore, too.

Which server goes first alternates from pair to pair. A machine has moments, so the
restarts are done RESTARTS times more in each pair, both servers in turn; medians are
over all of them."""
import argparse
import os
import shutil
import time

from lib import (Cairn, Failure, LlamaServer, WorkFolder, add_common_options, check_common_options,
                 default_llama_server, machine, median, memcpy_seconds, post, run_main, stream, table, tree_bytes,
                 write_json)

HERE = os.path.dirname(os.path.abspath(__file__))
TAIL = 40
MAX_TOKENS = 4
SAME = 5  # the same prompt in the same process so often
NO_WARM_START = ("--warm-start", "off")


class Prompts:
    """`n` tokens of natural text, of which the last TAIL differ from tail to tail."""

    def __init__(self, ids, n):
        if len(ids) < 2 * TAIL:
            raise Failure("the text is too short")
        while len(ids) < n + 8 * TAIL:
            ids = ids + ids
        self.head = ids[:n - TAIL]
        self.spare = ids[n:n + 8 * TAIL]

    def tail(self, k):
        at = k % 8 * TAIL
        tail = self.spare[at:at + TAIL]
        tail[0] = self.spare[0] + 1 + k  # tails differ in their first token
        return self.head + tail


def text_ids(server):
    text = ""
    for name in ("system.md", "tools.json"):
        with open(os.path.join(HERE, "..", "demo", name), encoding="utf-8") as file:
            text += file.read()
    return post(server, "/tokenize", {"content": text})["tokens"]


def number_ids(n):
    """Without llama-server nobody tells the ids of a text: take any, the same every time."""
    state, ids = 1, []
    for _ in range(n):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        ids.append(1000 + (state >> 33) % 20000)
    return ids


def median_of(times, ask):
    """Of answers that take milliseconds the one in the middle: a moment of the machine's would count."""
    return sorted((ask() for _ in range(times)), key=lambda answer: answer["ttft"])[times // 2]


# ---- cairn ----

def ask_cairn(server, tokens):
    body = {"prompt": tokens, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    sent = time.monotonic()
    answer = stream(server, "/v1/completions", body)
    if answer.prompt_tokens != len(tokens):
        raise Failure(f"cairn counted {answer.prompt_tokens} prompt tokens of {len(tokens)}")
    return {"ttft": answer.ttft, "cached": answer.cached_tokens,
            "from_exec": sent - server.started + answer.ttft, "timings": answer.timings}


def first_request(args, work, root, tokens, want, options=()):
    """A new process, its first request, SIGKILL."""
    server = Cairn(args.cairn, args.model, work, [*cairn_args(args, root), *options])
    ready = server.wait_ready()
    result = {**ask_cairn(server, tokens), "ready": ready}
    server.kill()
    if result["cached"] < want:
        raise Failure(f"only {result['cached']} tokens were restored, {want} expected")
    return result


def cairn_args(args, root):
    return ["--cache-dir", root, "--ctx", str(args.ctx), *args.cairn_arg]


def cairn_pair(args, work, prompts):
    root = os.path.join(work, "root")
    shutil.rmtree(root, ignore_errors=True)
    n, r = args.tokens, {}
    server = Cairn(args.cairn, args.model, work, cairn_args(args, root))
    server.wait_ready()
    r["cold"] = ask_cairn(server, prompts.tail(0))
    r["same"] = median_of(SAME, lambda: ask_cairn(server, prompts.tail(0)))
    r["other"] = ask_cairn(server, prompts.tail(1))
    server.kill()
    if r["cold"]["cached"] != 0:
        raise Failure(f"the cold request found {r['cold']['cached']} cached tokens")
    r["restart_same"] = first_request(args, work, root, prompts.tail(0), n - 1)
    r["restart_other"] = first_request(args, work, root, prompts.tail(2), n - TAIL)
    r["nowarm_same"] = first_request(args, work, root, prompts.tail(0), n - 1, NO_WARM_START)
    r["nowarm_other"] = first_request(args, work, root, prompts.tail(3), n - TAIL, NO_WARM_START)
    shutil.rmtree(os.path.join(root, "digests"))
    r["nodigest_same"] = first_request(args, work, root, prompts.tail(0), n - 1)
    shutil.rmtree(os.path.join(root, "digests"))
    r["nodigest_other"] = first_request(args, work, root, prompts.tail(4), n - TAIL)
    r["root_bytes"] = tree_bytes(root)
    return r


# ---- llama-server, by hand ----

def llama_args(args):
    return ["-c", str(args.ctx), "-b", str(args.batch), "-ub", str(args.batch), "-t", str(args.threads),
            "-tb", str(args.threads), "-fa", "on", "-ctk", "f16", "-ctv", "f16", "-np", "1", "-cram", "0",
            "--offline"]


def ask_llama(server, tokens):
    body = {"prompt": tokens, "n_predict": MAX_TOKENS, "temperature": 0, "ignore_eos": True, "cache_prompt": True,
            "id_slot": 0}
    sent = time.monotonic()
    answer = stream(server, "/completion", body)
    return {"ttft": answer.ttft, "cached": answer.cached_tokens,
            "from_exec": sent - server.started + answer.ttft, "timings": answer.timings}


def start_llama(args, work):
    slots = os.path.join(work, "slots")
    os.makedirs(slots, exist_ok=True)
    server = LlamaServer(args.llama_server, args.model, work, slots, llama_args(args))
    server.wait_ready()
    return server


def slot(server, action):
    start = time.monotonic()
    post(server, f"/slots/0?action={action}", {"filename": "slot.bin"})
    return time.monotonic() - start


def llama_restart(args, work, tokens):
    """What it reused is in the table: of models with windows or recurrent layers it computes all again."""
    server = start_llama(args, work)
    restore = slot(server, "restore")
    result = ask_llama(server, tokens)
    server.kill()
    return {**result, "restore": restore, "request": result["ttft"], "ttft": restore + result["ttft"]}


def llama_pair(args, work, prompts):
    r = {}
    server = start_llama(args, work)
    r["cold"] = ask_llama(server, prompts.tail(0))
    r["save"] = slot(server, "save")
    r["same"] = median_of(SAME, lambda: ask_llama(server, prompts.tail(0)))
    r["other"] = ask_llama(server, prompts.tail(1))
    server.kill()
    r["restart_same"] = llama_restart(args, work, prompts.tail(0))
    r["restart_other"] = llama_restart(args, work, prompts.tail(2))
    r["file_bytes"] = os.path.getsize(os.path.join(work, "slots", "slot.bin"))
    return r


# ---- report ----

ROWS = (("cold", "cold"), ("same", "same process, same prompt"), ("other", f"same process, other tail of {TAIL}"),
        ("restart_same", "restart, same prompt"), ("restart_other", f"restart, other tail of {TAIL}"),
        ("nowarm_same", "restart without warm start, same prompt"),
        ("nowarm_other", f"restart without warm start, other tail of {TAIL}"),
        ("nodigest_same", "restart without digest cache, same prompt"),
        ("nodigest_other", f"restart without digest cache, other tail of {TAIL}"))


def medians(pairs, field="ttft"):
    def of(key):
        return [p[key][field] for p in pairs] + [again[field] for p in pairs for again in p.get("more", {}).get(key, ())]
    return {key: median(of(key)) for key, _ in ROWS if key in pairs[0]}


def restart_again(args, work, prompts, ours, theirs):
    """Both servers in turn, on what the pair has left on disk; each other tail is new to it."""
    root = os.path.join(work, "root")
    again = {"cairn": {key: [] for key in ("restart_same", "restart_other", "nowarm_same", "nowarm_other")},
             "llama": {"restart_same": [], "restart_other": []}}
    for i in range(args.restarts):
        for end, tail, want in (("same", 0, args.tokens - 1), ("other", 5 + 2 * i, args.tokens - TAIL)):
            again["cairn"]["restart_" + end].append(first_request(args, work, root, prompts.tail(tail), want))
            if theirs:
                again["llama"]["restart_" + end].append(llama_restart(args, work, prompts.tail(tail)))
            again["cairn"]["nowarm_" + end].append(
                first_request(args, work, root, prompts.tail(tail + (tail > 0)), want, NO_WARM_START))
    ours[-1]["more"] = again["cairn"]
    if theirs:
        theirs[-1]["more"] = again["llama"]


def targets(args, ours, theirs, memcpy):
    """(what, value, limit, met) for each number that issue and documentation promise."""
    checks = [("restart, other tail: share of cold", ours["restart_other"] / ours["cold"], 1 / 50),
              ("restart, same prompt: share of cold", ours["restart_same"] / ours["cold"], 1 / 400),
              ("restart above same process, same prompt, ms", 1e3 * (ours["restart_same"] - ours["same"]),
               2e3 * memcpy + 10),
              ("restart above same process, other tail, ms", 1e3 * (ours["restart_other"] - ours["other"]),
               2e3 * memcpy + 10)]
    if theirs:
        checks += [(f"{name} / llama-server", ours[key] / theirs[key], limit)
                   for key, name, limit in (("restart_same", "restart, same prompt", 1.0),
                                            ("restart_other", "restart, other tail", 1.0),
                                            ("same", "same process, same prompt", 1.1),
                                            ("other", "same process, other tail", 1.1))]
    return [{"what": what, "value": value, "limit": limit, "met": value <= limit} for what, value, limit in checks]


def restored_bytes(pairs):
    """By the request itself; a warm start brings the same."""
    return median([p["nowarm_same"]["timings"]["restored_bytes"] for p in pairs])


def parts(pairs):
    """Where the time to the first token goes, by the server's own clock."""
    rows = []
    for key, name in ROWS:
        ttft, restore, prefill = (median([p[key]["timings"][part] for p in pairs])
                                  for part in ("ttft_ms", "restore_ms", "prefill_ms"))
        rows.append((name, f"{ttft:.1f}", f"{restore:.1f}", f"{prefill:.1f}", f"{ttft - restore - prefill:.1f}"))
    table(("cairn, inside the server", "TTFT ms", "restore", "prefill", "waiting and rest"), rows)


def report(args, ours, theirs, memcpy):
    a, b = medians(ours), medians(theirs) if theirs else {}
    exec_a = medians(ours, "from_exec")
    exec_b = medians(theirs, "from_exec") if theirs else {}
    rows = []
    for key, name in ROWS:
        rows.append((name, f"{1e3 * a[key]:.1f}", f"1/{a['cold'] / a[key]:.0f}", ours[0][key]["cached"],
                     f"{exec_a[key]:.2f}" if "_" in key else "",
                     f"{1e3 * b[key]:.1f}" if key in b else "", theirs[0][key]["cached"] if key in b else "",
                     f"{exec_b[key]:.2f}" if "restart" in key and b else ""))
    table(("scenario", "cairn TTFT ms", "of cold", "cached", "from exec s", "llama-server ms", "reused", "from exec s"), rows)
    print()
    parts(ours)
    print(f"\n{args.tokens} tokens, {len(ours)} pairs; restored {restored_bytes(ours) / 1e6:.1f} MB, memcpy of them "
          f"{1e3 * memcpy:.1f} ms; on disk {ours[0]['root_bytes'] / 1e6:.1f} MB"
          + (f", llama-server's file {theirs[0]['file_bytes'] / 1e6:.1f} MB, written by hand in "
             f"{1e3 * median([p['save'] for p in theirs]):.0f} ms" if theirs else ""))
    checks = targets(args, a, b, memcpy)
    for check in checks:
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.4g} "
              f"(at most {check['limit']:.4g})")
    return {"bench": "restart", "machine": machine(), "tokens": args.tokens, "tail": TAIL, "pairs": len(ours),
            "threads": args.threads, "batch": args.batch, "memcpy_s": memcpy, "cairn_ttft_s": a,
            "cairn_from_exec_s": exec_a, "llama_server_ttft_s": b, "llama_server_from_exec_s": exec_b,
            "targets": checks, "raw": {"cairn": ours, "llama_server": theirs}}


def get_ids(args, work):
    if not args.llama_server:
        return number_ids(args.tokens)
    server = start_llama(args, work)
    ids = text_ids(server)
    server.kill()
    return ids


def main():
    parser = argparse.ArgumentParser(description="Time to first token after a restart.")
    add_common_options(parser)
    parser.add_argument("--llama-server", default=default_llama_server(),
                        help="llama-server of the same build (default: $LLAMA_BIN's); '' measures Cairn alone")
    parser.add_argument("--tokens", type=int, default=7500)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=5, help="more restarts with either prompt in each pair")
    parser.add_argument("--ctx", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=512, help="llama-server's batch; Cairn's default is 512")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="llama-server's; Cairn's default: all cores")
    args = parser.parse_args()
    check_common_options(args)
    if args.tokens < 4 * TAIL or args.tokens + MAX_TOKENS > args.ctx or args.pairs < 1 or args.restarts < 0:
        raise Failure(f"--tokens must be {4 * TAIL} to --ctx - {MAX_TOKENS}, --pairs at least 1, --restarts at least 0")
    work = WorkFolder(args.work).path
    prompts = Prompts(get_ids(args, work), args.tokens)
    ours, theirs = [], []
    for pair in range(args.pairs):
        jobs = [lambda: ours.append(cairn_pair(args, work, prompts))]
        if args.llama_server:
            jobs.insert(pair % 2, lambda: theirs.append(llama_pair(args, work, prompts)))
        for job in jobs:
            job()
        restart_again(args, work, prompts, ours, theirs)
    memcpy = memcpy_seconds(int(restored_bytes(ours)))
    write_json(args.json, report(args, ours, theirs, memcpy))
    return 0


if __name__ == "__main__":
    run_main(main)
