"""The model's file is written while the server runs: no page of other weights."""
from cairn_http import *
import cairn_http

PROMPT, OTHER = prompt_of(24), prompt_of(24, 300)


def settled(server, n_starts):
    wait_until(lambda: server.log().count("disk cache on") == n_starts, 60, "the weights digest")


def ask(server, prompt, **fields):
    """(what was answered to the last bit, cached tokens, tokens from the store)"""
    answer = server.complete(prompt, logprobs=5, max_tokens=4, **fields)
    return answer["choices"][0], answer["timings"]["cached_n"], answer["timings"]["from_store"]


def write_into(path, offset, data):
    """As a tool does that keeps the times: size, inode and mtime stay."""
    before = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(offset)
        old = f.read(len(data))
        f.seek(offset)
        f.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return old


def pages(server):
    return sorted(name for _, _, names in os.walk(os.path.join(server.cache, "v1")) for name in names
                  if name.endswith(".page"))


def test_written_in_place_while_it_runs():
    """B088. The weights are mapped, so what is computed afterwards is neither the old model's nor the new one's."""
    need_model()
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        model = cairn_http.MODEL
        cairn_http.MODEL = os.path.join(folder, "model.gguf")
        shutil.copyfile(model, cairn_http.MODEL)
        try:
            with Server("--reproducible", "--batch", "64") as server:
                settled(server, 1)
                want, cached, _ = ask(server, OTHER, cache_salt="cold")
                equal(cached, 0)
                first, cached, _ = ask(server, PROMPT)
                equal(cached, 0)
                wait_until(lambda: len(pages(server)) >= 2, 30, "the pages of two salts")
                time.sleep(1.5)
                before = pages(server)
                old = write_into(cairn_http.MODEL, os.path.getsize(cairn_http.MODEL) // 2, bytes(1 << 20))
                got, cached, _ = ask(server, OTHER)
                equal(cached, 0)
                check(got != want, "the weights that were written make no difference: the test proves nothing")
                equal(ask(server, PROMPT)[1], 0, "goes on from what the old weights computed")
                check("disk cache off: the model's file changed" in server.log(), server.log()[-800:])
                equal(server.terminate(), 0)
                equal(pages(server), before, "stored under the old digest")
                write_into(cairn_http.MODEL, os.path.getsize(cairn_http.MODEL) // 2, old)
                server.start()
                settled(server, 2)
                equal(ask(server, OTHER), (want, 0, 0), "the old model again")
                again, cached, from_store = ask(server, PROMPT)
                equal(again, first)
                check(cached == from_store and cached >= 64, f"only {cached} came back")
        finally:
            cairn_http.MODEL = model


main([test_written_in_place_while_it_runs])
