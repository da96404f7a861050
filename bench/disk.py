"""What bench/cold and bench/verify-cost share: bench_disk over each kind of KV, and its options.

bench_disk does the measuring; what exactly stands at the top of its source.
"""
import argparse
import os
import shutil

from lib import ROOT, WorkFolder, machine, write_json
from store import KINDS, call


def _measure(args, verb, work, kind, name):
    model, root = os.path.join(work, kind + ".gguf"), os.path.join(work, "root")
    call(os.path.join(args.build, "bench_gen"), kind, model)
    result = call(os.path.join(args.build, "bench_disk"), verb, "--model", model, "--root", root,
                  "--tokens", args.tokens, "--rounds", args.rounds, "--readers", args.readers)
    shutil.rmtree(root)
    os.unlink(model)
    return {"kind": name, **result}


def run_disk_bench(name, verb, rounds, description, report):
    """report(results) prints its table and returns the targets."""
    parser = argparse.ArgumentParser(prog=name, description=description.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with the bench programs")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--readers", type=int, default=0, help="reader threads; 0: the library's default")
    parser.add_argument("--work", help="folder for models and cache roots; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    work = WorkFolder(args.work).path
    results = [_measure(args, verb, work, kind, kind_name) for kind, kind_name in KINDS]
    checks = report(results)
    for check in checks:
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3f} (limit {check['limit']})")
    write_json(args.json, {"bench": name, "machine": machine(), "raw": results, "targets": checks})
    return 0
