"""bench/cold: a restore that the page cache has nothing of, beside plain reading of the same files."""
from disk import run_disk_bench
from lib import run_main, table


def report(results):
    rows = [(r["kind"], f"{r['file_bytes'] / 1e6:.0f}", f"{r['cold_restore_ms']:.1f}", f"{r['best_read_ms']:.1f}",
             f"{r['best_threads']:.0f} {'direct' if r['best_is_direct'] else 'buffered'}",
             f"{r['file_bytes'] / r['best_read_ms'] / 1e6:.2f}", f"{r['time_ratio']:.3f}") for r in results]
    table(("KV", "MB", "restore ms", "best read ms", "threads", "GB/s", "ratio"), rows)
    return [{"what": f"{r['kind']}: time of a cold restore, share of the best reading", "value": r["time_ratio"],
             "limit": 1.15, "met": r["time_ratio"] <= 1.15} for r in results]


if __name__ == "__main__":
    run_main(lambda: run_disk_bench("cold", "cold", 5, __doc__, report))
