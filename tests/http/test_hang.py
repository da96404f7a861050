"""A disk that hangs under the running program (hang.c is preloaded): requests are
computed, nobody waits twice, the cache comes back by itself, and a stop ends."""
import os

from cairn_http import *

HANG = sys.argv[2] if len(sys.argv) > 2 else ""
PATIENCE = 1


def ask(server, which):
    """(text, tokens from the store, why not more, seconds)"""
    began = time.monotonic()
    answer = server.complete(prompt_of(16, which * 1000), max_tokens=4)
    return (answer["choices"][0]["text"], answer["timings"]["from_store"], answer["timings"].get("miss"),
            time.monotonic() - began)


def lines(server, words):
    return sum(words in line for line in server.log().splitlines())


def test_a_disk_that_hangs_costs_its_timeout_once_and_comes_back():
    folder = tempfile.mkdtemp(prefix="cairn-test-")
    switch = os.path.join(folder, "hangs")
    try:
        with Server("--reproducible", "--batch", "32", "--cache-timeout", str(PATIENCE), folder=folder,
                    env={"LD_PRELOAD": HANG, "CAIRN_TEST_HANG": switch}) as server:
            wait_until(lambda: "disk cache on" in server.log(), 60, "the weights digest")
            texts = [ask(server, which)[0] for which in (0, 1)]
            wait_until(lambda: min(ask(server, 0)[1], ask(server, 1)[1]) > 60, 60, "both to be stored")
            computed = ask(server, 2)[3]  # a prompt of the same length that is not stored

            open(switch, "w").close()
            seconds = []
            for which in (0, 1, 0, 1):
                text, from_store, miss, took = ask(server, which)
                equal((text, from_store, miss), (texts[which], 0, "the disk does not answer"))
                seconds.append(took)
            check(seconds[0] < 3 * computed + 3 * PATIENCE + 2, f"the first request took {seconds[0]:.1f} s")
            check(min(seconds[1:]) < computed + PATIENCE / 2, f"the others took {seconds[1:]} s, {computed:.1f} s computed")
            equal(server.request("GET", "/health")[0], 200)
            equal(lines(server, "does not answer: until it does"), 1, "said once")

            os.unlink(switch)
            wait_until(lambda: min(ask(server, 0)[1], ask(server, 1)[1]) > 60, 60, "the disk to be used again")
            equal(lines(server, "answers again"), 1)
            equal(ask(server, 0)[0], texts[0])

            open(switch, "w").close()
            ask(server, 1)
            began = time.monotonic()
            equal(server.terminate(timeout=40), 0)
            check(time.monotonic() - began < 30, f"the stop took {time.monotonic() - began:.1f} s")
            check(lines(server, "leaving without") == 1, "the log says why")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main([test_a_disk_that_hangs_costs_its_timeout_once_and_comes_back])
