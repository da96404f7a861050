"""bench/hammer: four processes on one root under kill -9: answers, budget, leftovers, hits.

Answers of --reproducible servers are computed from an empty root first. Then four of
them share one root with a budget of a third of what the prompts need, answer the same
prompts in random order, and are killed and started again at random. Every answer is
compared, text and log-probabilities, bit for bit. The root is looked at all the time
with the servers stopped (SIGSTOP), so that what is added up is what lies there at
one moment.

Prompts fall into groups that share their beginning; popular ones are asked more often.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import lib
from lib import Cairn, Failure, WorkFolder, add_common_options, check_common_options, machine, post, run_main, write_json

PAGE = 64  # = --batch: a grid step and a page
N_SERVERS = 4
SHARED, OWN = 2, 4  # pages of a prompt that its group shares, and of its own
N_GENERATED = 4
ORPHAN_S = 60


def prompts_of(n_groups, n_members, seed):
    """Token ids, the same for the same arguments."""
    numbers = random.Random(seed)
    ids = lambda n: [numbers.randrange(100, 4000) for _ in range(n)]
    prompts = []
    for _ in range(n_groups):
        shared = ids(SHARED * PAGE)
        prompts += [shared + ids(OWN * PAGE + 3) for _ in range(n_members)]  # 3: no prompt ends with a page
    # Neighbours are of different groups: asked in this order, none is resident in part.
    return [prompts[g * n_members + m] for m in range(n_members) for g in range(n_groups)]


def small_model(args, work):
    """Hardly any compute, so that the disk is what they fight for; the vocabulary is the given model's."""
    path = os.path.join(work, "model.gguf")
    generator = os.path.join(os.path.dirname(os.path.abspath(args.cairn)), "bench_gen")
    subprocess.run([generator, "kv24", path, "--vocab", args.model], check=True, stderr=subprocess.DEVNULL)
    return path


def weights_of(prompts):
    return [1 / (1 + i) ** 0.7 for i in range(len(prompts))]


def server_of(args, work, name, root, budget):
    folder = os.path.join(work, name)
    os.makedirs(folder, exist_ok=True)
    return Cairn(args.cairn, args.model, folder,
                 ["--reproducible", "--batch", str(PAGE), "--ctx", str((SHARED + OWN + 2) * PAGE), "--threads", "1",
                  "--cache-dir", root, "--cache-disk", str(budget), "--cache-reserve", "1M", "--grace", "5",
                  *args.cairn_arg])


def ask(server, prompt, timeout=120):
    """(what must be the same each time, cached tokens)"""
    body = {"prompt": prompt, "max_tokens": N_GENERATED, "temperature": 0, "logprobs": 3, "ignore_eos": True}
    answer = post(server, "/v1/completions", body, timeout)
    choice = answer["choices"][0]
    if not choice["logprobs"] or not choice["logprobs"]["token_logprobs"]:
        raise Failure("an answer without log-probabilities")
    return ((choice["text"], choice["logprobs"]), answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def look(root, now):
    """(bytes of all that lies there, age of the oldest temporary file)"""
    total, oldest = 0, 0.0
    for folder, _, names in os.walk(root):
        total += os.lstat(folder).st_blocks * 512
        for name in names:
            st = os.lstat(os.path.join(folder, name))
            total += st.st_blocks * 512
            if ".tmp" in name:
                oldest = max(oldest, now - st.st_mtime)
    return total, oldest


def stop(pid):
    """Stops a process, and returns when all its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    tasks = f"/proc/{pid}/task"
    for _ in range(2000):
        states = set()
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="ascii", errors="replace") as stat:
                states.add(stat.read().rpartition(")")[2].split()[0])
        if states <= {"T", "t", "Z", "X"}:
            return
        time.sleep(0.001)
    raise Failure("a server does not stop")


class Fleet:
    """The servers, who may be killed and stopped at any moment."""

    def __init__(self, args, work, root, budget):
        self.start = lambda i: server_of(args, work, f"server-{i}", root, budget)
        self.lock = threading.Lock()
        self.root = root
        self.servers = [self.start(i) for i in range(N_SERVERS)]
        self.kills = self.samples = 0
        self.most = 0
        self.oldest = 0.0

    def kill(self, i):
        with self.lock:
            self.servers[i].kill()
            self.servers[i] = self.start(i)
            self.kills += 1

    def sample(self):
        with self.lock:
            try:
                for server in self.servers:
                    stop(server.pid)
                total, oldest = look(self.root, time.time())
            finally:
                for server in self.servers:
                    os.kill(server.pid, signal.SIGCONT)
        self.samples += 1
        self.most = max(self.most, total)
        self.oldest = max(self.oldest, oldest)

    def end(self):
        with self.lock:
            for server in self.servers:
                server.kill()


class Score:
    def __init__(self, expected):
        self.expected = expected
        self.lock = threading.Lock()
        self.answers = self.interrupted = self.prompt_tokens = self.cached_tokens = 0
        self.wrong = []

    def add(self, index, prompt, got, cached):
        with self.lock:
            self.answers += 1
            self.prompt_tokens += len(prompt)
            self.cached_tokens += cached
            if got != self.expected[index]:
                self.wrong.append((index, cached, got, self.expected[index]))

    def hit_rate(self):
        return self.cached_tokens / max(1, self.prompt_tokens)


def client(fleet, i, prompts, score, until, seed):
    numbers = random.Random(seed)
    weights = weights_of(prompts)
    while time.monotonic() < until:
        index = numbers.choices(range(len(prompts)), weights)[0]
        server = fleet.servers[i]
        ready = False
        try:
            server.wait_ready()
            ready = True
            got, cached = ask(server, prompts[index])
        except (OSError, Failure, lib.http.client.HTTPException, ValueError):
            if server.process.poll() not in (None, -signal.SIGKILL):
                raise Failure(f"a server ended by itself with {server.process.returncode}: "
                              + lib.tail(server.log_path))
            score.interrupted += ready  # killed under the request
            time.sleep(0.02)
            continue
        score.add(index, prompts[index], got, cached)


def guarded(problems, function, *arguments):
    try:
        function(*arguments)
    except BaseException as problem:  # noqa: BLE001 - told by the main thread
        problems.append(problem)


def hammer(args, work, root, budget, prompts, expected):
    score, problems = Score(expected), []
    fleet = Fleet(args, work, root, budget)
    numbers = random.Random(args.seed)
    until = time.monotonic() + args.seconds
    clients = [threading.Thread(target=guarded,
                                args=(problems, client, fleet, i, prompts, score, until, args.seed * 100 + i))
               for i in range(N_SERVERS)]
    for thread in clients:
        thread.start()
    try:
        next_kill = time.monotonic() + 4
        while time.monotonic() < until and not problems:
            fleet.sample()
            if time.monotonic() >= next_kill:
                fleet.kill(numbers.randrange(N_SERVERS))
                next_kill = time.monotonic() + numbers.uniform(0.5, 2) * args.kill_every
            time.sleep(args.sample_every)
    finally:
        until = 0
        for thread in clients:
            thread.join(timeout=180)
        fleet.sample()
        fleet.end()
    if problems:
        raise problems[0]
    return score, fleet


def alone(args, work, root, budget, prompts, expected, n_requests):
    """The hit rate of one process that nobody disturbs."""
    score, numbers = Score(expected), random.Random(args.seed + 1)
    server = server_of(args, work, "alone", root, budget)
    server.wait_ready()
    weights = weights_of(prompts)
    for _ in range(n_requests):
        index = numbers.choices(range(len(prompts)), weights)[0]
        got, cached = ask(server, prompts[index])
        score.add(index, prompts[index], got, cached)
    server.terminate()
    return score


def cold_answers(args, work, prompts):
    """Each from an empty root: nothing is stored, and nothing is resident."""
    server = server_of(args, work, "cold", os.path.join(work, "no-root"), "off")
    server.wait_ready()
    answers = []
    for prompt in prompts:
        answer, cached = ask(server, prompt)
        if cached:
            raise Failure(f"{cached} tokens were cached where there is no cache")
        answers.append(answer)
    server.terminate()
    return answers


def working_set(args, work, prompts):
    """Bytes of a root that has all of it."""
    root = os.path.join(work, "whole-root")
    server = server_of(args, work, "whole", root, "32G")
    server.wait_ready()
    for prompt in prompts:
        ask(server, prompt)
    server.terminate()
    total = look(root, time.time())[0]
    shutil.rmtree(root)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--alone", type=int, default=0, help="requests of the undisturbed process (default: 4 for a prompt)")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds between kills, on average 1.25 times that")
    parser.add_argument("--sample-every", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    check_common_options(args)
    work = WorkFolder(args.work).path
    args.model = small_model(args, work)
    prompts = prompts_of(args.groups, args.members, args.seed)
    expected = cold_answers(args, work, prompts)
    whole = working_set(args, work, prompts)
    budget = whole // 3
    undisturbed = alone(args, work, os.path.join(work, "alone-root"), budget, prompts, expected,
                        args.alone or 4 * len(prompts))
    score, fleet = hammer(args, work, os.path.join(work, "root"), budget, prompts, expected)
    wrong = score.wrong + undisturbed.wrong
    for index, cached, got, want in wrong[:3]:
        print(f"prompt {index}, {cached} tokens cached: {got!r:.200} instead of {want!r:.200}", file=sys.stderr)
    print(f"{len(prompts)} prompts, {whole / 1e6:.0f} MB of pages, a budget of {budget / 1e6:.0f} MB; {args.seconds:.0f} s: "
          f"{score.answers} answers, {fleet.kills} kills, {score.interrupted} requests interrupted, "
          f"{fleet.samples} looks at the root")
    checks = [("wrong answers", len(wrong), 0, len(wrong) == 0),
              ("most bytes at a time", fleet.most, budget, fleet.most <= budget),
              ("age of the oldest temporary file, s", round(fleet.oldest, 1), ORPHAN_S, fleet.oldest <= ORPHAN_S),
              ("hits, as a share of one undisturbed process's", round(score.hit_rate() / undisturbed.hit_rate(), 3), 0.5,
               score.hit_rate() > 0.5 * undisturbed.hit_rate()),
              ("kills", fleet.kills, 1, fleet.kills >= 1)]
    for what, value, limit, met in checks:
        print(f"  {'met   ' if met else 'MISSED'} {what}: {value} (limit {limit})")
    write_json(args.json, {"bench": "hammer", "machine": machine(), "seconds": args.seconds, "prompts": len(prompts),
                           "budget_bytes": budget, "answers": score.answers, "kills": fleet.kills,
                           "hit_rate": score.hit_rate(), "undisturbed_hit_rate": undisturbed.hit_rate(),
                           "targets": [{"what": w, "value": v, "limit": l, "met": m} for w, v, l, m in checks]})
    return 0 if all(met for *_, met in checks) else 1


if __name__ == "__main__":
    run_main(main)
