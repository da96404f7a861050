"""What the tests of models with checkpoints share: models of bench_gen with
SmolLM2's tokenizer, that tokenizer for plain text, and a chat template.

The template is that of an agent's model: tools in front, calls and results in
turns of their own, and reasoning that is shown only behind the last user message.
render() writes the same text, tokens_of() its ids; a test compares their number
with the server's, so that neither can be wrong unseen.
"""
import re
import struct

from cairn_http import *

GENERATOR = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else ""

TEMPLATE = r"""{%- set ns = namespace(last=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
{%- if tools %}{{ '<|im_start|>tools\n' }}{% for t in tools %}{{ t.function.name + ': ' + t.function.description + '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif -%}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' -}}
{%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}{{ '<think>' + m.reasoning_content + '</think>\n' }}{% endif -%}
{%- if m.content %}{{ m.content }}{% endif -%}
{%- if m.tool_calls %}{% for c in m.tool_calls %}{{ '<tool_call>' + c.function.name + ' ' }}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}{{ '</tool_call>' }}{% endfor %}{% endif -%}
{{ '<|im_end|>\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""


def render(messages, tools=()):
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    text = ""
    if tools:
        text += "<|im_start|>tools\n" + "".join(f"{t['function']['name']}: {t['function']['description']}\n"
                                                for t in tools) + "<|im_end|>\n"
    for i, m in enumerate(messages):
        text += f"<|im_start|>{m['role']}\n"
        if m.get("reasoning_content") and i > last:
            text += f"<think>{m['reasoning_content']}</think>\n"
        text += m.get("content") or ""
        for call in m.get("tool_calls", ()):
            text += f"<tool_call>{call['function']['name']} {call['function']['arguments']}</tool_call>"
        text += "<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


def make_model(kind, folder):
    """The path of a model of this kind; about 36 MB."""
    need_model()
    path = os.path.join(folder, kind + ".gguf")
    subprocess.run([GENERATOR, kind, path, "--vocab", MODEL], check=True, stderr=subprocess.DEVNULL)
    return path


def make_template(folder):
    path = os.path.join(folder, "template.jinja")
    with open(path, "w") as f:
        f.write(TEMPLATE)
    return path


def read_gguf_arrays(path, keys):
    """Arrays of strings of a GGUF's head."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    found = {}
    with open(path, "rb") as f:
        def number(form):
            return struct.unpack("<" + form, f.read(struct.calcsize("<" + form)))[0]

        def value(kind, wanted):
            if kind == 8:
                data = f.read(number("Q"))
                return data.decode("utf-8", "replace") if wanted else None
            if kind == 9:
                inner, n = number("I"), number("Q")
                return [value(inner, wanted) for _ in range(n)]
            f.seek(sizes[kind], 1)
            return None

        f.seek(16)
        for _ in range(number("Q")):
            key = f.read(number("Q")).decode()
            array = value(number("I"), key in keys)
            if key in keys:
                found[key] = array
    return [found[key] for key in keys]


class Tokenizer:
    """SmolLM2's byte-pair encoding, for ASCII text and its two marks of a turn."""
    PIECE = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")

    def __init__(self, path=MODEL):
        need_model()
        tokens, merges = read_gguf_arrays(path, ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"])
        self.ids = {text: i for i, text in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.known = {}

    def piece(self, text):
        if text not in self.known:
            parts = list(text.replace(" ", "\u0120").replace("\n", "\u010a"))
            while len(parts) > 1:
                rank, at = min((self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self.known[text] = [self.ids[part] for part in parts]
        return self.known[text]

    def tokens_of(self, text):
        out = []
        for part in re.split(r"(<\|im_start\|>|<\|im_end\|>)", text):
            if part.startswith("<|im_"):
                out.append(self.ids[part])
            else:
                for piece in self.PIECE.findall(part):
                    out += self.piece(piece)
        return out


def n_shared(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
