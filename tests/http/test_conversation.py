"""Conversations of an agent on a hybrid and on a window model.

A growing conversation with tool loops, whose reasoning the template drops as soon
as the user speaks again; SIGKILL after every tenth turn (fifth in the short run).
Each turn computes at most what lies behind the longest prefix shared with any
earlier prompt, and 64 tokens.

Bytes: a turn's new state is the KV of the tokens behind that shared prefix and one
checkpoint. What the process wrote in the turn (/proc/PID/io, all that it wrote) must
be below three times that, over all turns; each turn's is printed.

CAIRN_CONVERSATION_TURNS=50 is the whole of it, the ordinary run takes 12 turns.
"""
import random

from prompts import *

TURNS = int(os.environ.get("CAIRN_CONVERSATION_TURNS", "12"))
KILL_EVERY = 10 if TURNS >= 20 else 5
SLACK = 64
WORDS = ("the river stone bridge moves under a grey light while seven birds look for bread near old houses and "
         "every child knows which door opens first when rain comes from the hills").split()
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [{"type": "function",
          "function": {"name": name, "description": f"Use this to {name} a file.", "parameters": PARAMETERS}}
         for name in ("read", "search", "change")]
KV_BYTES = 1024  # of a token: two attention layers, two KV heads of 64, f16


def words(pick, least, most):
    return " ".join(pick.choice(WORDS) for _ in range(pick.randrange(least, most)))


class Agent:
    """A server, what was sent to it, and what that cost."""

    def __init__(self, kind, tokenizer):
        self.folder = tempfile.mkdtemp(prefix="cairn-test-")
        self.tokenizer, self.sent = tokenizer, []
        self.written = self.new_state = 0
        try:
            self.server = Server("--chat-template-file", make_template(self.folder), "--threads", "1", ctx=12288,
                                 folder=self.folder, model=make_model(kind, self.folder))
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.settle()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self):
        wait_until(lambda: "disk cache on" in self.server.log(), 60, "the weights digest")

    def restart(self):
        """SIGKILL when what was put is on disk."""
        self.quiet(0.3)
        self.server.kill()
        os.unlink(self.server.log_path)
        self.server.start()
        self.settle()

    def bytes_written(self):
        with open(f"/proc/{self.server.process.pid}/io") as f:
            return int(re.search(r"^wchar: (\d+)", f.read(), re.M).group(1))

    def quiet(self, seconds=0.1):
        """Waits until nothing was written for a while."""
        seen, since, deadline = self.bytes_written(), time.monotonic(), time.monotonic() + 20
        while time.monotonic() - since < seconds:
            check(time.monotonic() < deadline, "it writes for ever")
            time.sleep(0.02)
            now = self.bytes_written()
            if now != seen:
                seen, since = now, time.monotonic()

    def checkpoint_bytes(self):
        """What the largest one takes without its tokens."""
        return max((os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(self.server.cache)
                    for name in names if name.endswith(".ckpt")), default=0)

    def ask(self, messages):
        """(computed tokens, tokens behind the longest shared prefix, cached tokens)"""
        tokens = self.tokenizer.tokens_of(render(messages, TOOLS))
        body = {"messages": messages, "tools": TOOLS, "max_tokens": 2, "temperature": 0}
        status, answer = self.server.post("/v1/chat/completions", body)
        equal(status, 200, answer)
        usage = answer["usage"]
        equal(usage["prompt_tokens"], len(tokens), "tokens of the prompt, as counted here")
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        shared = max((n_shared(tokens, other) for other in self.sent), default=0)
        check(cached <= shared, cached, "cached, but only", shared, "were ever sent")
        self.sent.append(tokens)
        return len(tokens) - cached, len(tokens) - shared, cached

    def turn(self, messages, what):
        before = self.bytes_written()
        computed, new, cached = self.ask(messages)
        self.quiet()
        wrote, state = self.bytes_written() - before, new * KV_BYTES + self.checkpoint_bytes()
        self.written += wrote
        self.new_state += state
        print(f"  {what}: {computed + cached} tokens, {new} new, {computed} computed, {wrote / 1024:.0f} KiB written, "
              f"{wrote / state:.2f} x the new state", flush=True)
        check(computed <= new + SLACK, what, computed, "computed,", new, "new")


def conversation(pick):
    """Yields the messages of each turn: a question, two calls of tools, then the next question."""
    messages = [{"role": "system", "content": words(pick, 500, 501)}]
    for turn in range(TURNS):
        if turn % 3 == 0:
            if turn:
                messages.append({"role": "assistant", "reasoning_content": words(pick, 30, 60),
                                 "content": words(pick, 20, 60)})
            messages.append({"role": "user", "content": words(pick, 20, 80)})
        else:
            call = {"id": f"call_{turn}", "type": "function",
                    "function": {"name": "read", "arguments": json.dumps({"path": words(pick, 2, 4)})}}
            messages.append({"role": "assistant", "reasoning_content": words(pick, 30, 60), "content": "",
                             "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": words(pick, 50, 200)})
        yield messages


def grow(agent, pick):
    for turn, messages in enumerate(conversation(pick)):
        if turn and turn % KILL_EVERY == 0:
            agent.restart()
        agent.turn(messages, f"turn {turn + 1}")
    check(agent.written < 3 * agent.new_state, "bytes written:", agent.written, "new state:", agent.new_state)
    return messages


def forks(agent, pick, messages):
    """Regenerate, edit the last question, part in the middle of the system prompt."""
    agent.restart()
    agent.turn(messages, "the same prompt")
    equal(agent.ask(messages)[0], 1, "computed of the same prompt")
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    agent.turn(messages[:last] + [{"role": "user", "content": words(pick, 20, 80)}], "the last question edited")
    half = messages[0]["content"][:len(messages[0]["content"]) // 2]
    for i in range(2):
        other = [{"role": "system", "content": half + " " + str(i) + words(pick, 200, 201)}, messages[1]]
        if i == 0:
            agent.ask(other)  # where prompts part is known when they have parted
        else:
            agent.restart()
            agent.turn(other, "another second half of the system prompt")


def run_kind(kind, tokenizer):
    pick = random.Random(5)
    with Agent(kind, tokenizer) as agent:
        messages = grow(agent, pick)
        print(f"{kind}: {agent.written / agent.new_state:.2f} x the new state written")
        forks(agent, pick, messages)


TOKENIZER = Tokenizer()


def test_hybrid():
    run_kind("hybrid", TOKENIZER)


def test_window():
    run_kind("window", TOKENIZER)


main([test_hybrid, test_window])
