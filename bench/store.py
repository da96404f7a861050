#!/usr/bin/env python3
"""bench/store: export and import beside memcpy, at 22 and 144 KiB of KV per token, plain and encrypted; 10,000 siblings.

    python3 bench/store.py [--build FOLDER] [--tokens 8192] [--rounds 5] [--siblings 10000] [--json FILE]

FOLDER (default: build) holds bench_gen, bench_store, bench_sealed and bench_siblings. What they
measure stands at the top of their sources. Every import runs in a process that
did not write the pages, from the page cache, all checksums on, and its logits
are compared with the writer's bit for bit."""
import argparse
import json
import os
import shutil
import subprocess

from lib import ROOT, Failure, WorkFolder, machine, run_main, table, write_json

KINDS = (("kv24", "22.5 KiB/token"), ("kv147", "144 KiB/token"))


def call(program, *args):
    done = subprocess.run([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Failure(f"{os.path.basename(program)} {' '.join(map(str, args))}:\n"
                      + done.stderr.decode("utf-8", "replace"))
    return json.loads(done.stdout) if done.stdout.strip() else {}


def measure_kind(args, work, kind):
    program = os.path.join(args.build, "bench_store")
    model = os.path.join(work, kind + ".gguf")
    call(os.path.join(args.build, "bench_gen"), kind, model)
    results = []
    for run in args.run:
        root, logits = os.path.join(work, "root"), os.path.join(work, "logits")
        shutil.rmtree(root, ignore_errors=True)
        common = ("--model", model, "--root", root, "--logits", logits, "--tokens", args.tokens, "--run", run)
        out = call(program, "export", *common, "--rounds", args.rounds)
        back = call(program, "import", *common, "--rounds", args.rounds, "--readers", args.readers)
        results.append({"run": run, "export": out, "import": back})
        shutil.rmtree(root)
    sealed = call(os.path.join(args.build, "bench_sealed"), "--model", model, "--root", root, "--tokens", args.tokens,
                  "--rounds", args.rounds, "--readers", args.readers)
    shutil.rmtree(root)
    os.unlink(model)
    return results, sealed


def speed(size, ms):
    return f"{size / ms / 1e6:.2f}"


def report_kind(name, results):
    print(f"\n{name}")
    rows = []
    for r in results:
        out, back = r["export"], r["import"]
        pages = back["tokens"] / 256
        rows.append((r["run"], speed(out["bytes"], out["record_ms"]), speed(out["bytes"], out["runtime_get_ms"]),
                     speed(out["bytes"], out["memcpy_ms"]), f"{100 * out['memcpy_ms'] / out['record_ms']:.0f} %",
                     speed(out["bytes"], out["publish_ms"]),
                     speed(back["bytes"], back["restore_ms"]), speed(back["bytes"], back["memcpy_ms"]),
                     f"{100 * back['memcpy_ms'] / back['restore_ms']:.0f} %",
                     f"{1e3 * (back['restore_ms'] - back['memcpy_ms']) / pages:.0f}"))
    table(("run", "export GB/s", "runtime get", "memcpy", "share", "to disk", "import GB/s", "memcpy", "share",
           "us/page above"), rows)
    rows = []
    for r in results:
        back = r["import"]
        parts = back["read_verify_ms"] + back["runtime_set_ms"] + back["lookup_ms"]
        rows.append((r["run"], f"{back['restore_ms']:.1f}", f"{back['first_restore_ms']:.1f}",
                     f"{back['lookup_ms']:.2f}", f"{back['read_ms']:.1f}",
                     f"{back['read_verify_ms'] - back['read_ms']:.1f}", f"{back['runtime_set_ms']:.1f}",
                     f"{back['restore_ms'] - parts:.1f}", f"{back['peak_extra_kib'] / 1024:.0f}",
                     f"{r['export']['peak_extra_kib'] / 1024:.0f}"))
    print()
    table(("run", "import ms", "first", "lookup", "read", "verify", "set_data", "rest or overlap", "peak MiB import",
           "peak MiB export"), rows)


def report_sealed(sealed):
    print("\nwith --cache-key-file")
    table(("KV", "restore ms", "plain", "speed of plain", "to disk ms", "plain", "speed of plain"),
          [(name, f"{s['sealed_restore_ms']:.1f}", f"{s['plain_restore_ms']:.1f}", f"{s['restore_speed_ratio']:.2f}",
            f"{s['sealed_to_disk_ms']:.1f}", f"{s['plain_to_disk_ms']:.1f}", f"{s['to_disk_speed_ratio']:.2f}")
           for name, s in sealed])


def siblings(args, work):
    root = os.path.join(work, "siblings")
    program = os.path.join(args.build, "bench_siblings")
    results = [call(program, verb, "--root", root, "--count", args.siblings) for verb in ("write", "find")]
    shutil.rmtree(root)
    print(f"\n{args.siblings} siblings")
    table(("process", "first lookup ms", "median ms", "worst ms"),
          [(r["process"], f"{r['first_lookup_ms']:.2f}", f"{r['lookup_ms']:.2f}", f"{r['worst_lookup_ms']:.2f}")
           for r in results])
    return results


def targets(results, lookups):
    checks = [{"what": "import of 144 KiB/token: share of memcpy, best run", "limit": 0.75, "at_least": True,
               "value": max(r["import"]["memcpy_ms"] / r["import"]["restore_ms"] for r in results["kv147"])}]
    checks += [{"what": f"{r['siblings']:.0f} siblings, {r['process']}, ms warm", "limit": 5, "at_least": False,
                "value": r["lookup_ms"]} for r in lookups]
    print()
    for check in checks:
        check["met"] = (check["value"] >= check["limit"]) == check["at_least"] or check["value"] == check["limit"]
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3g} "
              f"(at {'least' if check['at_least'] else 'most'} {check['limit']})")
    return checks


def main():
    parser = argparse.ArgumentParser(description="Export, import and lookup.")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with the bench programs")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readers", type=int, default=0, help="reader threads; 0: the library's default")
    parser.add_argument("--run", type=int, action="append", help="tokens of a run; default: 256, 1024 and 2048")
    parser.add_argument("--siblings", type=int, default=10000)
    parser.add_argument("--work", help="folder for models and cache roots; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    args.run = args.run or [256, 1024, 2048]
    work = WorkFolder(args.work).path
    results, sealed = {}, {}
    for kind, name in KINDS:
        results[kind], sealed[kind] = measure_kind(args, work, kind)
        report_kind(name, results[kind])
    report_sealed([(name, sealed[kind]) for kind, name in KINDS])
    lookups = siblings(args, work)
    checks = targets(results, lookups)
    write_json(args.json, {"bench": "store", "machine": machine(), "tokens": args.tokens, "kinds": results,
                           "sealed": sealed,
                           "siblings": lookups, "targets": checks})
    return 0


if __name__ == "__main__":
    run_main(main)
