#!/usr/bin/env python3
"""bench/recording: prefill and decode rates with the tier on and off, and with --reproducible.

    python3 bench/recording.py [--cairn PROGRAM] [--model FILE] [--prompt 1500] [--generate 128] [--rounds 5]
                               [--json FILE]

Servers of the modes run one at a time, in changing order within a round, each
with an empty cache root and one request to warm up. Every measured prompt is
new, so all of it is prefilled and recorded. Prefill: prompt tokens over time to
the first token. Decode: tokens after the first over the time they took. Both at
the client. Work: prompt tokens over the processor time that the server took for
the whole request and for what it wrote behind it, which tells more than the
others on a machine that is busy otherwise."""
import argparse
import os
import shutil
import time

from lib import (Cairn, Failure, WorkFolder, add_common_options, check_common_options, machine, median, run_main,
                 stream, table, write_json)

MODES = (("off", "tier off", ["--cache-disk", "off"]),
         ("on", "tier on", []),
         ("reproducible", "tier on, --reproducible", ["--reproducible"]),
         ("reproducible_off", "tier off, --reproducible", ["--reproducible", "--cache-disk", "off"]))


def prompt_ids(n, seed):
    state, ids = seed * 2 + 1, []
    for _ in range(n):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        ids.append(1000 + (state >> 33) % 20000)
    return ids


WHAT = ("prefill", "decode", "work")
SETTLE = 0.5  # seconds in which the last pages are written


def processor_seconds(server):
    with open(f"/proc/{server.pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, n, generate, seed):
    body = {"prompt": prompt_ids(n, seed), "max_tokens": generate, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    before = processor_seconds(server)
    answer = stream(server, "/v1/completions", body)
    done = answer.usage.get("completion_tokens", 0)
    if answer.cached_tokens:
        raise Failure(f"{answer.cached_tokens} tokens of a new prompt were cached")
    if done < 2:
        raise Failure(f"only {done} tokens were generated")
    time.sleep(SETTLE)
    return {"prefill": n / answer.ttft, "decode": (done - 1) / (answer.last_token - answer.ttft),
            "work": n / max(processor_seconds(server) - before, 0.01)}


def measure(args, work, mode, round_):
    root = os.path.join(work, "root")
    shutil.rmtree(root, ignore_errors=True)
    server = Cairn(args.cairn, args.model, work,
                   ["--cache-dir", root, "--ctx", str(args.ctx), *mode[2], *args.cairn_arg])
    server.wait_ready()
    ask(server, 64, 4, 1)
    results = [ask(server, args.prompt, args.generate, 2 + round_ * args.requests + i) for i in range(args.requests)]
    code = server.terminate()
    if code != 0:
        raise Failure(f"cairn ended with exit code {code} after SIGTERM")
    return results


def share(results, mode, base, what):
    """Median over rounds of this mode's median beside the other's in the same round."""
    rounds = zip(results[mode], results[base])
    return median([median([x[what] for x in a]) / median([x[what] for x in b]) for a, b in rounds])


def main():
    parser = argparse.ArgumentParser(description="What recording and --reproducible cost.")
    add_common_options(parser)
    parser.add_argument("--prompt", type=int, default=1500, help="tokens of a prompt")
    parser.add_argument("--generate", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--requests", type=int, default=2, help="requests of a mode in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ctx", type=int, default=8192)
    args = parser.parse_args()
    check_common_options(args)
    work = WorkFolder(args.work).path
    results = {key: [] for key, _, _ in MODES}
    for round_ in range(args.rounds):
        for mode in MODES if round_ % 2 == 0 else MODES[::-1]:
            results[mode[0]].append(measure(args, work, mode, round_))
    rates = {key: {what: median([r[what] for round_ in results[key] for r in round_])
                   for what in WHAT} for key, _, _ in MODES}
    table(("mode", "prefill tokens/s", "decode tokens/s", "prompt tokens per processor second"),
          [(name, *(f"{rates[key][what]:.1f}" for what in WHAT)) for key, name, _ in MODES])
    checks = [{"what": f"{name}: {what}", "value": share(results, mode, base, what), "limit": limit}
              for mode, base, name, limits in (("on", "off", "tier on / off", (0.97, 0.97, 0.97)),
                                               ("reproducible", "on", "--reproducible / default", (0.90, 0.95, 0.90)))
              for what, limit in zip(WHAT, limits)]
    print()
    for check in checks:
        check["met"] = check["value"] >= check["limit"]
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3f} "
              f"(at least {check['limit']})")
    write_json(args.json, {"bench": "recording", "machine": machine(), "prompt": args.prompt,
                           "generate": args.generate, "rounds": args.rounds, "rates": rates, "targets": checks,
                           "raw": results})
    return 0


if __name__ == "__main__":
    run_main(main)
