"""bench/verify-cost: what a restore costs because every block is verified."""
from disk import run_disk_bench
from lib import run_main, table


def report(results):
    rows = [(r["kind"], f"{r['verified_ms']:.1f}", f"{r['unverified_ms']:.1f}", f"{r['speed_ratio']:.3f}") for r in results]
    table(("KV", "verified ms", "unverified ms", "speed of unverified"), rows)
    return [{"what": f"{r['kind']}: speed with verification, share of that without", "value": r["speed_ratio"],
             "limit": 0.95, "met": r["speed_ratio"] >= 0.95} for r in results]


if __name__ == "__main__":
    run_main(lambda: run_disk_bench("verify-cost", "verify", 41, __doc__, report))
