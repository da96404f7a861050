"""bench/cold: a restore that the page cache has nothing of, beside plain reading of the same files.

bench_disk does the measuring; what exactly stands at the top of its source.
"""
import argparse
import os
import shutil

from lib import ROOT, WorkFolder, machine, run_main, table, write_json
from store import KINDS, call


def measure(args, work, kind, name):
    model, root = os.path.join(work, kind + ".gguf"), os.path.join(work, "root")
    call(os.path.join(args.build, "bench_gen"), kind, model)
    result = call(os.path.join(args.build, "bench_disk"), "cold", "--model", model, "--root", root,
                  "--tokens", args.tokens, "--rounds", args.rounds, "--readers", args.readers)
    shutil.rmtree(root)
    os.unlink(model)
    return {"kind": name, **result}


def report(results):
    rows = [(r["kind"], f"{r['file_bytes'] / 1e6:.0f}", f"{r['cold_restore_ms']:.1f}", f"{r['best_read_ms']:.1f}",
             f"{r['best_threads']:.0f} {'direct' if r['best_is_direct'] else 'buffered'}",
             f"{r['file_bytes'] / r['best_read_ms'] / 1e6:.2f}", f"{r['time_ratio']:.3f}") for r in results]
    table(("KV", "MB", "restore ms", "best read ms", "threads", "GB/s", "ratio"), rows)
    return [{"what": f"{r['kind']}: time of a cold restore, share of the best reading", "value": r["time_ratio"],
             "limit": 1.15, "met": r["time_ratio"] <= 1.15} for r in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with the bench programs")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readers", type=int, default=0, help="reader threads; 0: the library's default")
    parser.add_argument("--work", help="folder for models and cache roots; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    work = WorkFolder(args.work).path
    results = [measure(args, work, kind, name) for kind, name in KINDS]
    checks = report(results)
    for check in checks:
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3f} (limit {check['limit']})")
    write_json(args.json, {"bench": "cold", "machine": machine(), "raw": results, "targets": checks})
    return 0


if __name__ == "__main__":
    run_main(main)
