"""bench/verify-cost: what a restore costs because every block is verified.

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
    result = call(os.path.join(args.build, "bench_disk"), "verify", "--model", model, "--root", root,
                  "--tokens", args.tokens, "--rounds", args.rounds, "--readers", args.readers)
    shutil.rmtree(root)
    os.unlink(model)
    return {"kind": name, **result}


def report(results):
    rows = [(r["kind"], f"{r['verified_ms']:.1f}", f"{r['unverified_ms']:.1f}", f"{r['speed_ratio']:.3f}") for r in results]
    table(("KV", "verified ms", "unverified ms", "speed of unverified"), rows)
    return [{"what": f"{r['kind']}: speed with verification, share of that without", "value": r["speed_ratio"],
             "limit": 0.95, "met": r["speed_ratio"] >= 0.95} for r in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with the bench programs")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--readers", type=int, default=0, help="reader threads; 0: the library's default")
    parser.add_argument("--work", help="folder for models and cache roots; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    work = WorkFolder(args.work).path
    results = [measure(args, work, kind, name) for kind, name in KINDS]
    checks = report(results)
    for check in checks:
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3f} (limit {check['limit']})")
    write_json(args.json, {"bench": "verify-cost", "machine": machine(), "raw": results, "targets": checks})
    return 0


if __name__ == "__main__":
    run_main(main)
