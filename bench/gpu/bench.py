#!/usr/bin/env python3
"""bench/gpu: the programs of one GPU run, one table, one JSON.

    python3 bench/gpu/bench.py BUILD [--tokens 8609] [--kind qwen3-8b] [--rounds 5] [--json FILE]

BUILD holds bench_gen and bench_gpu. First exactness on a small model with
several KV types, then the large shape: cold prefill, recording, restart in new
processes with runs of 256 and 2,048 tokens from pageable and pinned memory, the
speed of the link. The root lies in the page cache, having just been written."""
import argparse
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lib import Failure, WorkFolder, machine, run_main, table, write_json  # noqa: E402
from store import call  # noqa: E402

TYPES = (("f16", "f16", ()), ("q8_0", "q8_0", ()), ("q4_0", "q4_0", ()), ("f16", "f16", ("--fa-off",)))
RESTARTS = ((256, ()), (2048, ()), (256, ("--pageable",)), (2048, ("--pageable",)))


class Bench:
    def __init__(self, args):
        self.args = args
        self.work = WorkFolder(args.work)
        self.program = os.path.join(args.build, "bench_gpu")

    def gpu(self, *args):
        return call(self.program, *args, "--threads", self.args.threads)

    def generate(self, kind):
        model = os.path.join(self.work.path, kind + ".gguf")
        call(os.path.join(self.args.build, "bench_gen"), kind, model)
        return model

    def folders(self):
        for name in ("root", "state"):
            shutil.rmtree(os.path.join(self.work.path, name), ignore_errors=True)
        return ("--root", os.path.join(self.work.path, "root"), "--state", self.work.sub("state"))

    def exactness(self):
        model, results = self.generate("kv24"), []
        for k, v, extra in TYPES:
            for run in (256, 2048):
                common = ("--model", model, *self.folders(), "--tokens", self.args.exact_tokens, "--run", run,
                          "--type-k", k, "--type-v", v, *extra)
                self.gpu("write", *common, "--rounds", 0)
                got = self.gpu("read", *common, "--rounds", 2)
                results.append({"k": k, "v": v, "fa": not extra, "run": run,
                                **{name: bool(value) for name, value in got.items() if name.startswith("exact_")}})
        os.unlink(model)
        return results

    def large(self):
        args = self.args
        model = self.generate(args.kind)
        common = ("--model", model, *self.folders(), "--tokens", args.tokens)
        result = {"write": self.gpu("write", *common, "--rounds", args.rounds), "read": []}
        for run, extra in RESTARTS:
            result["read"].append(self.gpu("read", *common, "--rounds", args.rounds, "--run", run, *extra))
        result["link"] = self.gpu("link", "--bytes", int(result["read"][0]["bytes"]))
        os.unlink(model)
        return result


def report_exactness(results):
    names = [n for n in results[0] if n.startswith("exact_")]
    table(("K, V", "FA", "run", *(n[6:].replace("_", " ") for n in names)),
          [(f"{r['k']}, {r['v']}", "on" if r["fa"] else "off", r["run"],
            *("equal" if r[n] else "DIFFERS" for n in names)) for r in results])


def report_large(args, result):
    write, link = result["write"], result["link"]
    cold = write["cold_ms"]
    rows = [("cold prefill", f"{cold:.1f}", "1", ""),
            ("cold prefill, recording", f"{write['cold_recording_ms']:.1f}", f"{cold / write['cold_recording_ms']:.3f}",
             "")]
    for r in result["read"]:
        where = f"restart, run {r['run']:.0f}, {r['memory'].split()[0]}"
        gbps = r["bytes"] / r["restore_ms"] / 1e6
        for key, name in (("same_prompt_ms", "same prompt"), ("other_tail_ms", "other tail of 161"),
                          ("first_other_tail_ms", "other tail, first in the process")):
            rows.append((f"{where}, {name}", f"{r[key]:.1f}", f"1/{cold / r[key]:.1f}",
                         f"{gbps:.1f}" if key == "same_prompt_ms" else ""))
    print(f"\n{args.kind}, {args.tokens} tokens, {result['read'][0]['bytes'] / 1e6:.0f} MB of KV, {link['device']}")
    table(("scenario", "TTFT ms", "of cold", "import GB/s"), rows)
    print()
    table(("link", "ms", "GB/s"), [(key[:-3].replace("_", " "), f"{link[key]:.1f}",
                                    f"{link['bytes'] / link[key] / 1e6:.1f}")
                                   for key in link if key.endswith("_ms") and key != "pinned_alloc_ms"])
    print(f"\ndecode {write['decode_per_s']:.1f} tokens/s, recording {write['decode_recording_per_s']:.1f}; "
          f"last page on disk {write['publish_after_ms']:.0f} ms after the answer; "
          f"pinned memory and digest at open: {result['read'][0]['open_ms']:.0f} ms")


def main():
    parser = argparse.ArgumentParser(description="Prefill, recording and restart on an accelerator.")
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("--kind", default="qwen3-8b", help="kind of model for the timings")
    parser.add_argument("--tokens", type=int, default=8609)
    parser.add_argument("--exact-tokens", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of the runtime on the CPU; default: all cores, at most 16")
    parser.add_argument("--work", help="folder for models and cache roots; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    bench = Bench(args)
    exact = bench.exactness()
    report_exactness(exact)
    result = {"bench": "gpu", "machine": machine(), "kind": args.kind, "tokens": args.tokens, "exact": exact}
    write_json(args.json, result)  # kept even if the rest runs out of time
    result.update(bench.large())
    report_large(args, result)
    write_json(args.json, result)
    wrong = [r for r in exact + result["read"] for name in r if name.startswith("exact_") and not r[name]]
    if wrong:
        raise Failure(f"logits after a restore differ in {len(wrong)} comparisons")
    return 0


if __name__ == "__main__":
    run_main(main)
