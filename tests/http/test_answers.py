"""Chat and completion answers: streamed and whole alike, usage, logprobs, limits.

Answers are compared with each other under --reproducible: otherwise the bits of a
cold and a cached prefill differ, and with them an answer now and then.
"""
from cairn_http import *

server = None


def test_front_pages():
    status, headers, body = server.request("GET", "/health")
    equal((status, json.loads(body)), (200, {"status": "ok"}))
    equal(headers["Content-Type"], "application/json")
    status, _, body = server.request("HEAD", "/")
    equal((status, body), (200, b""))
    status, _, body = server.request("GET", "/v1/models")
    models = json.loads(body)
    equal(models["object"], "list")
    equal([m["id"] for m in models["data"]], ["tiny"])
    equal(models["data"][0]["meta"]["n_ctx"], 1024)
    equal(server.request("GET", "/v1/models/tiny")[0], 200)
    equal(server.request("GET", "/v1/models/other")[0], 404)


def test_chat_stream_equals_whole():
    whole = server.chat("Name three colors.", max_tokens=24)
    choice = whole["choices"][0]
    equal(whole["object"], "chat.completion")
    equal(whole["model"], "SmolLM2-135M-Instruct.Q4_1")
    equal(choice["message"]["role"], "assistant")
    check(len(choice["message"]["content"]) > 5, "too short")
    stream = server.stream("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Name three colors."}], "temperature": 0, "max_tokens": 24})
    equal(stream.response.getheader("Content-Type"), "text/event-stream; charset=utf-8")
    chunks = list(stream.chunks())
    check(stream.done, "no [DONE]")
    equal(joined(chunks), choice["message"]["content"])
    equal(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
    equal([c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1], choice["finish_reason"])
    check(all(c["object"] == "chat.completion.chunk" and c["id"] == chunks[0]["id"] for c in chunks))


def test_completion_stream_equals_whole():
    prompt = "The days of the week are Monday,"
    whole = server.complete(prompt, max_tokens=16)
    stream = server.stream("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 16})
    chunks = list(stream.chunks())
    equal(joined(chunks), whole["choices"][0]["text"])
    equal(whole["object"], "text_completion")
    equal(whole["choices"][0]["finish_reason"], "length")
    equal(whole["usage"]["completion_tokens"], 16)


def test_usage_in_streams():
    body = {"messages": [{"role": "user", "content": "Hi."}], "temperature": 0, "max_tokens": 4}
    for options in (None, {}, {"include_usage": False}, {"include_usage": None}):
        chunks = list(server.stream("/v1/chat/completions", {**body, "stream_options": options}).chunks())
        check(all(len(c["choices"]) == 1 and "usage" not in c for c in chunks), "usage unasked with", options)
    chunks = list(server.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}).chunks())
    check(all(len(c["choices"]) == 1 for c in chunks[:-1]))
    equal(chunks[-1]["choices"], [])
    usage = chunks[-1]["usage"]
    equal(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
    equal(usage["completion_tokens"], 4)
    status, answer = server.post("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    equal((status, answer["usage"]["completion_tokens"]), (200, 4))
    check("timings" in answer and answer["timings"]["predicted_n"] == 4)
    check("timings" in chunks[-2], "no timings in the last chunk with a choice")


def test_token_ids_are_prompts():
    with_text = server.complete("Once upon a time", max_tokens=6)
    for prompt in (["Once upon a time"],):
        equal(server.complete(prompt, max_tokens=6)["choices"][0]["text"], with_text["choices"][0]["text"])
    ids = server.complete([19161, 1980, 253, 655], max_tokens=6)
    nested = server.complete([[19161, 1980, 253, 655]], max_tokens=6)
    equal(ids["choices"][0]["text"], nested["choices"][0]["text"])
    equal(ids["usage"]["prompt_tokens"], 4)
    echoed = server.complete("Once upon a time", max_tokens=6, echo=True)
    equal(echoed["choices"][0]["text"], "Once upon a time" + with_text["choices"][0]["text"])


def test_logprobs_of_chat():
    answer = server.chat("Say yes.", max_tokens=5, logprobs=True, top_logprobs=3)
    content = answer["choices"][0]["logprobs"]["content"]
    equal(len(content), answer["usage"]["completion_tokens"])
    equal("".join(c["token"] for c in content if c["logprob"] > -9999)[:len(answer["choices"][0]["message"]["content"])],
          answer["choices"][0]["message"]["content"])
    for entry in content:
        equal(len(entry["top_logprobs"]), 3)
        equal(bytes(entry["bytes"]).decode(), entry["token"])
        check(entry["logprob"] <= 0)
        equal(entry["top_logprobs"][0]["logprob"], entry["logprob"], "greedy takes the likeliest")
        values = [t["logprob"] for t in entry["top_logprobs"]]
        equal(values, sorted(values, reverse=True))
    stream = server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say yes."}],
                                                   "temperature": 0, "max_tokens": 5, "logprobs": True,
                                                   "top_logprobs": 3})
    streamed = []
    for chunk in stream.chunks():
        for choice in chunk["choices"]:
            streamed += (choice["logprobs"] or {"content": []})["content"]
    equal([c["token"] for c in streamed], [c["token"] for c in content])
    equal(server.chat("Say yes.", logprobs=False)["choices"][0]["logprobs"], None)


def test_logprobs_of_completions():
    answer = server.complete("One two three", max_tokens=4, logprobs=2)
    logprobs = answer["choices"][0]["logprobs"]
    equal([len(logprobs[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [4, 4, 4, 4])
    equal("".join(logprobs["tokens"]), answer["choices"][0]["text"])
    equal(logprobs["text_offset"][0], 0)
    equal(logprobs["text_offset"][1], len(logprobs["tokens"][0]))
    check(all(1 <= len(top) <= 2 for top in logprobs["top_logprobs"]))
    answer = server.complete("One two three", max_tokens=4, logprobs=0)
    check(all(top == {} for top in answer["choices"][0]["logprobs"]["top_logprobs"]))


def test_stop_strings():
    full = server.complete("A, B, C, D,", max_tokens=20)["choices"][0]["text"]
    check("," in full, "the model does not go on with the alphabet:", full)
    cut = server.complete("A, B, C, D,", max_tokens=20, stop=",")
    equal(cut["choices"][0]["text"], full[:full.index(",")])
    equal(cut["choices"][0]["finish_reason"], "stop")
    equal(server.complete("A, B, C, D,", max_tokens=20, stop=["zzz", ","])["choices"][0]["text"],
          full[:full.index(",")])
    equal(server.complete("A, B, C, D,", max_tokens=20, stop=["", "zzz"])["choices"][0]["text"], full)
    equal(server.complete("A, B, C, D,", max_tokens=20, stop=[])["choices"][0]["text"], full)
    stream = server.stream("/v1/completions", {"prompt": "A, B, C, D,", "temperature": 0, "max_tokens": 20,
                                               "stop": ","})
    equal(joined(stream.chunks()), full[:full.index(",")])


def test_limits_of_length():
    def n(**fields):
        body = {"messages": [{"role": "user", "content": "Count to one hundred."}], "temperature": 0}
        body.update(fields)
        status, answer = server.post("/v1/chat/completions", body)
        equal(status, 200, answer)
        return answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]

    equal(n(max_tokens=3), (3, "length"))
    equal(n(max_completion_tokens=5), (5, "length"))
    equal(n(max_completion_tokens=5, max_tokens=3), (3, "length"))
    equal(n(max_completion_tokens=3, max_tokens=5), (3, "length"))
    equal(n(max_completion_tokens=None, max_tokens=4), (4, "length"))
    equal(n(max_completion_tokens=-1, max_tokens=4.0), (4, "length"))
    check(n(max_tokens=2 ** 31, stop=["10"])[1] in ("stop", "length"))


def test_no_limit_goes_to_the_end_of_the_context():
    answer = server.complete(prompt_of(115), ignore_eos=True, max_tokens=None)
    usage = answer["usage"]
    equal(usage["total_tokens"], 1024)
    equal(answer["choices"][0]["finish_reason"], "length")
    check(usage["completion_tokens"] > 16, "the prompt was meant to leave room")


def test_warm_up():
    prompt = prompt_of(50, first=1000)
    warm = server.complete(prompt, max_tokens=0)
    equal((warm["choices"][0]["text"], warm["choices"][0]["finish_reason"]), ("", "length"))
    equal(warm["usage"]["completion_tokens"], 0)
    answer = server.complete(prompt, max_tokens=2)
    equal(answer["usage"]["prompt_tokens_details"]["cached_tokens"], warm["usage"]["prompt_tokens"] - 1)
    chunks = list(server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "warm"}],
                                                         "max_tokens": 0}).chunks())
    equal((joined(chunks), chunks[-1]["choices"][0]["finish_reason"]), ("", "length"))


def test_seeds():
    def text(**fields):
        return server.complete("My favourite animal is", temperature=1.5, max_tokens=12, **fields)["choices"][0]["text"]

    equal(text(seed=7), text(seed=7))
    check(len({text(seed=s) for s in range(6)}) > 1, "the seed changes nothing")
    equal(text(), text(), "--reproducible: chance comes from the request alone")


def test_no_seed_is_a_random_seed():
    texts = {server.complete("My favourite animal is", temperature=1.5, max_tokens=12)["choices"][0]["text"]
             for _ in range(6)}
    check(len(texts) > 1, "without a seed every answer is the same")


def test_sampling_fields_have_their_effect():
    greedy = server.complete("The capital of France is", max_tokens=8)["choices"][0]["text"]
    equal(server.complete("The capital of France is", max_tokens=8, temperature=2, top_k=1)["choices"][0]["text"], greedy)
    equal(server.complete("The capital of France is", max_tokens=8, temperature=2, min_p=1)["choices"][0]["text"], greedy)
    first = server.complete("The capital of France is", max_tokens=1, logprobs=2)["choices"][0]["logprobs"]
    best = first["tokens"][0]
    ids = server.chat("x", max_tokens=1)  # warm another path meanwhile
    check(ids["usage"]["completion_tokens"] == 1)
    biased = server.complete("The capital of France is", max_tokens=1, logit_bias={"28": 100})["choices"][0]["text"]
    equal(biased, ",")
    check(best != ",")
    repeated = server.complete("la la la la la la la", max_tokens=12)["choices"][0]["text"]
    check(server.complete("la la la la la la la", max_tokens=12, frequency_penalty=2, presence_penalty=2)
          ["choices"][0]["text"] != repeated, "penalties change nothing")


def test_unknown_fields_are_ignored():
    plain = server.chat("Say hello.", max_tokens=6)
    noisy = server.chat("Say hello.", max_tokens=6, user="me", metadata={"a": [1, 2.5]}, store=False, service_tier="auto",
                        session_id="x" * 50, prediction=None, modalities=["text"], model="whatever")
    equal(noisy["choices"][0]["message"], plain["choices"][0]["message"])
    equal(noisy["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"])


def test_cut_characters_are_never_sent():
    """A token limit or a stop string may fall inside a character."""
    prompt = "Emoji: \U0001F469\u200D\U0001F469\u200D\U0001F467 \u65e5\u672c\u8a9e \U0001F1EA\U0001F1FA. Again: \U0001F469"
    for n in range(1, 8):
        body = {"prompt": prompt, "temperature": 0, "max_tokens": n, "ignore_eos": True, "logprobs": 2}
        whole = server.complete(prompt, max_tokens=n, ignore_eos=True)["choices"][0]["text"]
        check(len(server.complete(prompt, max_tokens=n, ignore_eos=True, logprobs=3)
                  ["choices"][0]["logprobs"]["tokens"]) == n)
        equal(joined(server.stream("/v1/completions", body).chunks()), whole, n, "tokens")


def test_lone_continuation_bytes():
    """B034: bytes that are no character, forced; the log of tokens keeps them, the text is valid."""
    def forced(token, n, **fields):
        return server.chat("x", max_tokens=n, logit_bias={str(token): 100}, ignore_eos=True, **fields)

    def bytes_of(token):
        return forced(token, 1, logprobs=True)["choices"][0]["logprobs"]["content"][0]["bytes"]

    lone = next((t for t in range(100, 300) if len(bytes_of(t)) == 1 and 0x80 <= bytes_of(t)[0] < 0xC0), None)
    check(lone is not None, "no token of one continuation byte among 100 to 300")
    answer = forced(lone, 4, logprobs=True)
    equal([c["bytes"] for c in answer["choices"][0]["logprobs"]["content"]], [bytes_of(lone)] * 4)
    text = answer["choices"][0]["message"]["content"]
    check(set(text) <= {"\ufffd"}, repr(text))
    stream = server.stream("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 4, "ignore_eos": True,
        "logit_bias": {str(lone): 100}})
    equal(joined(stream.chunks()), text)


def test_no_text_of_prompts_in_the_log():
    server.chat("The codeword is xylophone-4711.", max_tokens=4)
    server.post("/v1/chat/completions", {"messages": [{"role": "xylophone-4711", "content": "xylophone-4711"}]})
    server.post("/v1/chat/completions", b'{"messages": xylophone-4711')
    check("xylophone-4711" not in server.log(), "prompt text in the log")


with Server("--alias", "tiny") as server:
    run([test_front_pages, test_usage_in_streams, test_limits_of_length, test_no_limit_goes_to_the_end_of_the_context,
         test_warm_up, test_no_seed_is_a_random_seed, test_no_text_of_prompts_in_the_log])
with Server("--reproducible") as server:
    run([test_chat_stream_equals_whole, test_completion_stream_equals_whole, test_token_ids_are_prompts,
         test_logprobs_of_chat, test_logprobs_of_completions, test_stop_strings, test_seeds,
         test_sampling_fields_have_their_effect, test_unknown_fields_are_ignored, test_cut_characters_are_never_sent,
         test_lone_continuation_bytes])
finish()
