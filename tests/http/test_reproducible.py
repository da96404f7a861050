"""--reproducible: an answer does not depend on the cache.

Prompts of 300 to 3,000 tokens that share a long beginning. The cold answer of
each comes from a fresh process with an empty root; then one root serves them all
in changing order: first pass (partial reuse), at once again, after SIGKILL, after
other requests, and as a turn of a conversation. Text and all logprobs must be
equal, and what was cached at least the longest prefix shared with anything sent
before, less one grid step.

CAIRN_REPRODUCIBLE_PROMPTS=20 is the whole of it (6 minutes on 2 cores); the
ordinary run takes 2 prompts.
"""
import random

from cairn_http import *

N_PROMPTS = int(os.environ.get("CAIRN_REPRODUCIBLE_PROMPTS", "2"))
SHORTEST, LONGEST, TAIL, ANSWER, GRID, CTX = 300, 3000 if N_PROMPTS >= 10 else 1100, 20, 12, 512, 4096


def make_prompts():
    pick = random.Random(7)
    base = [pick.randrange(1000, 40000) for _ in range(LONGEST)]
    step = (LONGEST - SHORTEST) / (N_PROMPTS - 1)
    return [base[:int(SHORTEST + i * step) - TAIL] + [pick.randrange(1000, 40000) for _ in range(TAIL)]
            for i in range(N_PROMPTS)]


def ask(server, prompt):
    """((text, logprobs), cached tokens, why not more)"""
    answer = server.complete(prompt, max_tokens=ANSWER, logprobs=5)
    usage, choice = answer["usage"], answer["choices"][0]
    equal(usage["prompt_tokens"], len(prompt))
    check(len(choice["logprobs"]["token_logprobs"]) > 0, "no logprobs")
    return (choice["text"], json.dumps(choice["logprobs"])), usage["prompt_tokens_details"]["cached_tokens"], \
        answer["timings"].get("miss")


def settled(server):
    wait_until(lambda: "disk cache on" in server.log(), 60, "the weights digest")


def cold_answers(prompts):
    answers = []
    for prompt in prompts:
        with Server("--reproducible", ctx=CTX) as server:
            answer, cached, _ = ask(server, prompt)
            equal(cached, 0, "cold")
            answers.append(answer)
    return answers


def shared(prompt, others):
    return max((next((i for i, (a, b) in enumerate(zip(prompt, other)) if a != b), min(len(prompt), len(other)))
                for other in others), default=0)


class Root:
    """One root and what was sent to it."""

    def __init__(self, server):
        self.server, self.sent, self.rows = server, [], 0

    def compare(self, what, prompt, want):
        answer, cached, miss = ask(self.server, prompt)
        equal(answer, want, what, len(prompt), "tokens,", cached, "cached")
        least = min(shared(prompt, self.sent), len(prompt) - 1) - GRID
        check(cached >= least, what, len(prompt), "tokens:", cached, "cached, at least", least, "are shared")
        if prompt in self.sent:
            equal(miss, "none", what, len(prompt), "tokens: behind the grid nothing is stored, and nothing missed")
        self.sent.append(prompt)
        self.rows += 1
        return cached


def test_answers_do_not_depend_on_the_cache():
    prompts = make_prompts()
    cold = cold_answers(prompts)
    check(len(set(cold)) == len(cold), "prompts whose answers are alike can't tell wrong from right")
    turns = [prompt[:-TAIL] + prompt[-TAIL:][::-1] + prompt[:TAIL] for prompt in prompts[:2]]
    cold_turns = cold_answers(turns)
    order, pick, cached = list(range(len(prompts))), random.Random(11), 0
    with Server("--reproducible", ctx=CTX) as server:
        settled(server)
        root = Root(server)
        for what in ("first pass", "after SIGKILL", "after SIGKILL again"):
            pick.shuffle(order)
            for i in order:
                cached += root.compare(what, prompts[i], cold[i])
                cached += root.compare(what + ", repeated", prompts[i], cold[i])
            for turn, want in zip(turns, cold_turns):
                cached += root.compare(what + ", a turn of conversation", turn, want)
            time.sleep(2)  # what was put is on disk
            server.kill()
            server.start()
            settled(server)
        check(cached > 0, "nothing was ever reused")
        print(f"{len(prompts)} prompts, {root.rows} answers equal to cold ones, {cached} tokens cached")


main([test_answers_do_not_depend_on_the_cache])
