"""Facts hidden in a long prompt, asked with the cache off, cold, warm and after SIGKILL.

Real models, --reproducible: the text and the log-probabilities of each answer must be
the same each time, and what was restored must be most of the prompt. The dense model
has to find facts, else equal answers would mean little.

CAIRN_NEEDLE_TOKENS and CAIRN_NEEDLE_FACTS: about how long the prompt is, and how many
facts are in it; the whole of it is 1000 and 5, the ordinary run takes less.
"""
import random

from cairn_http import *

N_TOKENS = int(os.environ.get("CAIRN_NEEDLE_TOKENS", "300"))
N_FACTS = int(os.environ.get("CAIRN_NEEDLE_FACTS", "2"))
GRID = 128
GEMMA = os.environ.get("CAIRN_TEST_WINDOW_MODEL") or os.path.join(os.path.dirname(MODEL), "gemma-3-270m-q4_k_m.gguf")
NAMES = ("Oliver", "Martha", "Walter", "Helen", "George")
THINGS = ("violin", "bicycle", "telescope", "umbrella", "piano")
FILLER = ("The market opens early and the bakers carry their bread through the rain. ",
          "Two dogs sleep in front of the town hall and nobody wakes them. ",
          "In winter the lake freezes and children skate until it is dark. ",
          "The train to the coast leaves twice a day and is often late. ",
          "An old clock in the tower strikes the hours, but never the right ones. ")


def document():
    """Filler of 15 tokens a sentence, with the facts at equal distances."""
    pick, sentences = random.Random(3), []
    n = N_TOKENS // 15
    for i in range(n):
        for k in range(N_FACTS):
            if i == (2 * k + 1) * n // (2 * N_FACTS):
                sentences.append(f"{NAMES[k]} keeps a {THINGS[k]} in the cellar. ")
        sentences.append(pick.choice(FILLER))
    return "".join(sentences)


def questions():
    text = document()
    return [f"{text}\n\nQuestion: What does {NAMES[k]} keep in the cellar?\nAnswer: {NAMES[k]} keeps a"
            for k in range(N_FACTS)]


def ask(server, prompt, **fields):
    """((text, logprobs), tokens of the prompt, cached, from the store)"""
    answer = server.complete(prompt, max_tokens=6, logprobs=3, **fields)
    choice, usage = answer["choices"][0], answer["usage"]
    return ((choice["text"], json.dumps(choice["logprobs"])), usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"], answer["timings"]["from_store"])


def on_grid(n):
    return (n - 1) // GRID * GRID


def run_model(model):
    """The texts, and which facts they tell."""
    options = dict(ctx=2048, model=model)
    prompts = questions()
    with Server("--reproducible", "--batch", str(GRID), "--cache-disk", "off", **options) as server:
        off = []
        for i, prompt in enumerate(prompts):  # salts, so that nothing in memory is shared either
            answer, _, cached, _ = ask(server, prompt, cache_salt=f"question {i}")
            equal(cached, 0, "cached although it is off")
            off.append(answer)
    with Server("--reproducible", "--batch", str(GRID), "--warm-start", "off", **options) as server:
        def again(*warm_start):
            time.sleep(1.5)
            server.kill()
            server.options = ["--reproducible", "--batch", str(GRID), *warm_start]
            server.start()
            wait_until(lambda: "disk cache on" in server.log().rpartition("loading ")[2], 60, "the weights digest")

        wait_until(lambda: "disk cache on" in server.log(), 60, "the weights digest")
        for what in ("cold", "warm", "after SIGKILL"):
            for prompt, want in zip(prompts, off):
                answer, n, cached, from_store = ask(server, prompt)
                equal(answer, want, what)
                if what != "cold":
                    equal(cached, on_grid(n), what, "of", n)
                if what == "after SIGKILL" and prompt is prompts[0]:
                    equal(from_store, on_grid(n), what, "of", n)
            if what == "warm":
                again("--warm-start", "off")
        if model == GEMMA:  # a window comes back early, too
            again("--warm-start", "on")
            ask(server, prompts[-1])  # notes it
            again()
            wait_until(lambda: "warm start: 1 prompt" in server.log(), 60, "the warm start")
            answer, n, cached, from_store = ask(server, prompts[-1])
            equal((answer, cached, from_store), (off[-1], on_grid(n), 0), "after a warm start")
    texts = [text for text, _ in off]
    found = sum(THINGS[k] in text for k, text in enumerate(texts))
    print(f"{os.path.basename(model)}: {n} tokens, {found} of {N_FACTS} facts found: {texts}")
    return found


def test_dense_model():
    check(run_model(MODEL) > 0, "it found no fact")


def test_window_model():
    if not os.path.exists(GEMMA):
        print(f"no model at {GEMMA}; set CAIRN_TEST_WINDOW_MODEL")
        return
    run_model(GEMMA)


main([test_dense_model, test_window_model])
