"""What a request may not be: each refused with the field's name before any stream byte."""
from cairn_http import *

server = None

USER = [{"role": "user", "content": "hi"}]

# field of the error -> fields of a chat request that must be refused for it
CHAT = [
    ("messages", {"messages": None}), ("messages", {"messages": []}), ("messages", {"messages": "hi"}),
    ("messages[0]", {"messages": ["hi"]}), ("messages[0].role", {"messages": [{"content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": "king", "content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": 1, "content": "hi"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5.5}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": {"type": "text"}}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}]}),
    ("messages[1].tool_calls", {"messages": USER + [{"role": "assistant", "tool_calls": "x"}]}),
    ("messages[1].tool_calls", {"messages": USER + [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}),
    ("tools", {"tools": {}}), ("tools[0]", {"tools": [1]}), ("tools[0].function", {"tools": [{"type": "function"}]}),
    ("tools[0].function", {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
    ("tools[0].function", {"tools": [{"type": "function", "function": {"name": ""}}]}),
    ("tool_choice", {"tool_choice": "always"}), ("tool_choice", {"tool_choice": 1}),
    ("tool_choice", {"tools": [{"type": "function", "function": {"name": "a"}}],
                     "tool_choice": {"type": "function", "function": {"name": "b"}}}),
    ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
    ("response_format", {"response_format": "json"}), ("response_format", {"response_format": {"type": "xml"}}),
    ("response_format", {"response_format": {"type": "json_schema"}}),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}),
    ("logprobs", {"logprobs": 1}), ("top_logprobs", {"top_logprobs": 2}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}), ("top_logprobs", {"logprobs": True, "top_logprobs": -1}),
    ("stream", {"stream": "yes"}), ("stream", {"stream": 1}), ("stream_options", {"stream_options": 1}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": "yes"}}),
    ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
    ("model", {"model": 5}), ("chat_template_kwargs", {"chat_template_kwargs": 1}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"messages": 5}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"messages": [{"role": "user", "content": "other"}]}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"tools": []}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"bos_token": "x"}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"eos_token": "x"}}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"add_generation_prompt": False}}),
    ("tool_choice", {"tool_choice": "required"}), ("tool_choice", {"tools": [], "tool_choice": "required"}),
    ("tool_choice", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "b"}}}),
    ("tool_choice", {"tools": [{"type": "function", "function": {"name": "a"}}],
                     "tool_choice": {"type": "function", "function": {"name": 1.5}}}),
]

BOTH = [
    ("temperature", -0.1), ("temperature", "hot"), ("temperature", 1000), ("temperature", True), ("top_p", 1.5),
    ("top_p", -1), ("min_p", 2), ("top_k", -2), ("top_k", 1.5), ("top_k", "5"), ("presence_penalty", 3),
    ("frequency_penalty", -3), ("repeat_penalty", 0), ("seed", "x"), ("seed", 1.5), ("n", 0), ("n", 2), ("n", "1"),
    ("max_tokens", -2), ("max_tokens", "10"), ("max_tokens", 1.5), ("max_tokens", 10 ** 30), ("max_tokens", True),
    ("max_completion_tokens", -5), ("max_completion_tokens", [1]), ("stop", 5), ("stop", [1]), ("stop", {"a": 1}),
    ("stop", ["x"] * 17), ("logit_bias", [1]), ("logit_bias", {"a": 1}), ("logit_bias", {"1": "x"}),
    ("logit_bias", {"1": 101}), ("logit_bias", {"99999999": 1}), ("logit_bias", {"-1": 1}), ("ignore_eos", 1),
]

COMPLETION = [
    ("prompt", {"prompt": None}), ("prompt", {"prompt": 5}), ("prompt", {"prompt": []}), ("prompt", {"prompt": {}}),
    ("prompt", {"prompt": ""}), ("prompt", {"prompt": ["a", "b"]}), ("prompt", {"prompt": [1, "a"]}),
    ("prompt", {"prompt": [1, -1]}), ("prompt", {"prompt": [1, 2 ** 40]}), ("prompt", {"prompt": [1.5]}),
    ("prompt", {"prompt": [[]]}), ("prompt", {"prompt": [[[1]]]}), ("prompt", {"prompt": 1.5}),
    ("logprobs", {"logprobs": True}), ("logprobs", {"logprobs": 21}), ("echo", {"echo": "no"}), ("best_of", {"best_of": 2}),
]


def refused(path, body, param):
    for stream in (False, True):
        sent = body if "stream" in body else {**body, "stream": stream}
        status, headers, data = server.request("POST", path, json.dumps(sent).encode())
        what = f"{path} {json.dumps(sent)[:200]}"
        equal(status, 400, what, data[:300])
        equal(headers["Content-Type"], "application/json", what)
        error = json.loads(data)["error"]
        equal(set(error), {"message", "type", "param", "code"}, what)
        equal((error["type"], error["param"]), ("invalid_request_error", param), what, error["message"])
        check(len(error["message"]) > 10, what)


def test_chat_fields():
    for param, fields in CHAT:
        refused("/v1/chat/completions", {"messages": USER, "max_tokens": 1, **fields}, param)


def test_a_tool_that_is_not_there_is_named():
    status, answer = server.post("/v1/chat/completions", {
        "messages": USER, "tools": [{"type": "function", "function": {"name": "a"}}],
        "tool_choice": {"type": "function", "function": {"name": "b"}}})
    message = answer["error"]["message"]
    check(status == 400 and "'b'" in message and "template" not in message, status, message)


def test_numbers_in_unknown_fields():
    """Of any size: what is not asked for is not refused."""
    for number in ("1" * 20, "-" + "9" * 40, "1" * 401, "-" + "7" * 100000, "1e999", "0." + "1" * 1000):
        body = '{"prompt":"hi","max_tokens":0,"unknown":%s,"metadata":{"x":[%s]}}' % (number, number)
        status, answer = server.post("/v1/completions", body.encode())
        equal(status, 200, number[:30], answer)


def test_fields_of_both():
    for name, value in BOTH:
        refused("/v1/chat/completions", {"messages": USER, name: value}, name)
        refused("/v1/completions", {"prompt": "hi", name: value}, name)


def test_completion_fields():
    for param, fields in COMPLETION:
        refused("/v1/completions", {"prompt": "hi", "max_tokens": 1, **fields}, param)


def test_null_is_like_missing():
    names = ["temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "max_tokens", "logit_bias", "tools",
             "tool_choice", "response_format", "logprobs", "top_logprobs", "stream", "stream_options", "model",
             "parallel_tool_calls", "presence_penalty", "ignore_eos"]
    body = {"messages": USER, **{n: None for n in names}, "max_completion_tokens": 2}
    status, answer = server.post("/v1/chat/completions", body)
    equal(status, 200, answer)


def test_prompt_longer_than_the_context():
    for body, path, param in (({"prompt": prompt_of(200)}, "/v1/completions", "prompt"),
                              ({"prompt": [5] * 300}, "/v1/completions", "prompt"),
                              ({"prompt": [5] * 100000}, "/v1/completions", "prompt"),
                              ({"messages": [{"role": "user", "content": prompt_of(200)}]}, "/v1/chat/completions",
                               "messages")):
        for stream in (False, True):
            status, answer = server.post(path, {**body, "stream": stream})
            equal((status, answer["error"]["code"], answer["error"]["param"]), (400, "context_length_exceeded", param))
            check("256" in answer["error"]["message"], answer["error"]["message"])
    status, answer = server.post("/v1/completions", {"prompt": [5] * 256})
    equal((status, answer["error"]["code"]), (400, "context_length_exceeded"))
    answer = server.complete([5] * 255, max_tokens=50, ignore_eos=True)
    equal((answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (1, "length"))


def test_paths_and_methods():
    equal(server.post("/v1/nothing", {})[0], 404)
    equal(server.post("/v1/chat/completions/", {})[0], 404)
    equal(server.request("GET", "/" + "x" * 5000)[0], 404)
    for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/completions", "POST"),
                                ("POST", "/health", "GET, HEAD"), ("DELETE", "/v1/models", "GET, HEAD")):
        status, headers, body = server.request(method, path, b"")
        equal((status, headers["Allow"]), (405, allow), method, path)
        equal(json.loads(body)["error"]["type"], "invalid_request_error")


def bad_json(body, seconds=1.0):
    for path in ("/v1/chat/completions", "/v1/completions"):
        begin = time.monotonic()
        status, answer = server.post(path, body)
        took = time.monotonic() - begin
        equal((status, answer["error"]["code"]), (400, "invalid_json"), body[:60])
        check(took < seconds, f"{took:.2f} s for", body[:60])


def test_malformed_json():
    for body in (b"", b"{", b"[]", b"null", b"5", b'"x"', b"{}x", b"{'a':1}", b'{"a":01}', b'{"a":1.}', b'{"a":+1}',
                 b'{"a":.5}', b'{"a":1e}', b'{1.5:2}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1,}', b'{"a" 1}',
                 b'{"a":"\x01"}', b'{"a":"\\x"}', b'{"a":"\\u12"}', b"\x00", b"\xef\xbb\xbf{}", b'{"a":tru}', b'{"a":1}{}'):
        bad_json(body)


def test_wrong_utf8():
    for piece in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80", b"\xf0\x80\x80\xaf"):
        bad_json(b'{"messages":[{"role":"user","content":"' + piece + b'"}],"prompt":"' + piece + b'"}')


def test_nesting_bombs():
    for depth in (129, 10 ** 4, 10 ** 6):
        for opening in (b"[", b'{"a":'):
            bad_json(b'{"unknown":' + opening * depth)
    bomb = b"[" * 10 ** 5 + b"]" * 10 ** 5
    for body in (b'{"tools":' + bomb + b"}",
                 b'{"response_format":{"type":"json_schema","json_schema":{"schema":' + bomb + b"}}}"):
        bad_json(body)
    deep = json.loads("[" * 100 + "]" * 100)
    equal(server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "unknown": deep})[0], 200)


def test_nested_arguments_of_calls():
    """Text that is JSON inside JSON has its own depth."""
    bomb = "[" * 10 ** 5
    status, answer = server.post("/v1/chat/completions", {
        "max_tokens": 1, "messages": USER + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": bomb}}]}, USER[0]]})
    equal((status, answer["error"]["code"]), (400, "context_length_exceeded"))


def test_the_server_lives_on():
    server.chat("hi", max_tokens=2)
    check(server.process.poll() is None)


with Server(ctx=256) as server:
    main([test_chat_fields, test_a_tool_that_is_not_there_is_named, test_numbers_in_unknown_fields, test_fields_of_both, test_completion_fields, test_null_is_like_missing,
          test_prompt_longer_than_the_context, test_paths_and_methods, test_malformed_json, test_wrong_utf8,
          test_nesting_bombs, test_nested_arguments_of_calls, test_the_server_lives_on])
