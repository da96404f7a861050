#!/usr/bin/env python3
"""bench/scale: a root with very many pages: opening, looking up, counting, evicting.

    python3 bench/scale.py [--build FOLDER] [--pages 1000000] [--work FOLDER] [--json FILE]

FOLDER (default: build) holds bench_scale; what it measures stands at the top of its source. A
million pages take 8 GB and as many inodes, and some minutes to
write and to remove."""
import argparse
import os
import shutil

from lib import ROOT, Failure, WorkFolder, machine, run_main, table, write_json
from store import call

PAGE_BYTES = 8192


def need_room(folder, pages):
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < pages * PAGE_BYTES * 1.1 or (disk.f_files and disk.f_favail < pages * 1.1):
        raise Failure(f"{folder} has no room for {pages} pages; name another with --work, or fewer with --pages")


def report(r):
    print(f"\n{r['pages']:.0f} pages; ms")
    table(("open", "to first lookup", "root counted after", "budget set in", "10,000 pages evicted in"),
          [tuple(f"{r[key]:.1f}" for key in ("open_ms", "first_lookup_ms", "counted_ms", "set_budget_ms", "evict_ms"))])
    print("\nlookups of 128 pages, warm; ms")
    table(("while", "lookups", "median", "p99"),
          [(name, f"{r[key + '_lookups']:.0f}", f"{r[key + '_median_ms']:.2f}", f"{r[key + '_p99_ms']:.2f}")
           for name, key in (("the root is counted", "counting"), ("alone", "alone"),
                             ("pages are evicted", "evicting"))])
    print(f"\nmemory: {r['open_extra_kib'] / 1024:.1f} MiB open, {r['evict_bytes_per_page']:.0f} bytes a page while "
          f"evicting ({r['evicted_pages']:.0f} pages went)")


def targets(r):
    checks = [{"what": "open to the end of the first lookup, ms", "limit": 1000, "value": r["first_lookup_ms"]},
              {"what": "lookup of a 128-page prefix, median ms", "limit": 1, "value": r["alone_median_ms"]},
              {"what": "the same while pages are evicted: times the median alone", "limit": 3,
               "value": r["evicting_median_ms"] / r["alone_median_ms"]}]
    print()
    for check in checks:
        check["met"] = check["value"] <= check["limit"]
        print(f"  {'met   ' if check['met'] else 'MISSED'} {check['what']}: {check['value']:.3g} "
              f"(at most {check['limit']})")
    return checks


def main():
    parser = argparse.ArgumentParser(description="A root with very many pages.")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with the bench programs")
    parser.add_argument("--pages", type=int, default=1000000)
    parser.add_argument("--work", help="folder for the root; default: the system's temporary folder")
    parser.add_argument("--json", help="write the result there")
    args = parser.parse_args()
    work = WorkFolder(args.work).path
    need_room(work, args.pages)
    root = os.path.join(work, "scale")
    program = os.path.join(args.build, "bench_scale")
    call(program, "make", "--root", root, "--pages", args.pages)
    result = call(program, "measure", "--root", root, "--pages", args.pages)
    report(result)
    checks = targets(result)
    shutil.rmtree(root)
    write_json(args.json, {"bench": "scale", "machine": machine(), "result": result, "targets": checks})
    return 0


if __name__ == "__main__":
    run_main(main)
