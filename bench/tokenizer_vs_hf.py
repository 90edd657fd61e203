#!/usr/bin/env python3
"""Ids and speed beside Hugging Face's `tokenizers`.   pip install tokenizers; ninja bench_tokenizer

    tokenizer_vs_hf.py --fixtures ../tests/data/tokenizers --mb 0.5
    tokenizer_vs_hf.py --program BUILD/bench/bench_tokenizer [--mb 100] [--text PATH ...] [TOKENIZER.json ...]

Ids are compared on 10,000 random lines and on --mb MiB of mixed text in documents of 1 MiB: files given by --text (this repository when none is),
Chinese, emoji, code, combining marks, control characters, in turn. Speeds are those on the documents; for `tokenizers` on one thread, on the
first --sample-mb MiB, as documents and as lines. Without a tokenizer.json, small ones are trained with `tokenizers` for every kind of
pre-tokenizer that flashgpt reads. Exits with 1 when an id differs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x00, 0x1F), (0x7F, 0x2FF), (0x300, 0x36F), (0x370, 0x58F), (0x590, 0x8FF), (0x900, 0xDFF), (0x1100, 0x11FF),
          (0x1E00, 0x20FF), (0x2100, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x1FAFF),
          (0x20000, 0x2FFFF), (0xE0000, 0xE0FFF), (0x30000, 0x10FFFF)]
WORDS = ["'s", "'S", "'\u017f", "'re", "'LL", "don't", "I'M", "  ", "\t", "\r\n", "\u00a0", "\u3000", "   ", "1234567", "3.14", "x", " the", "café",
         "e\u0301", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<tool_call>", "\u2581", " \u2581", "==", "();", "\U0001F468\u200D\U0001F469",
         "中文", "。", "，", "ไทย", "ก็", "हिन्दी", "한국어", "\u1112\u1161\u11ab", "ﬁ", "ß", "\u0344", "\u0f73", "Ⅷ", "½", "٣", "\u2028", "\u0085"]


def random_line(rnd):
    out = []
    for _ in range(rnd.randrange(0, 40)):
        kind = rnd.random()
        if kind < 0.4:
            out.append(rnd.choice(WORDS))
        elif kind < 0.6:
            out.append(" " * rnd.randrange(1, 4))
        else:
            low, high = rnd.choice(RANGES)
            out += [chr(c) for c in (rnd.randint(low, high) for _ in range(rnd.randrange(1, 6))) if not 0xD800 <= c < 0xE000]
    return "".join(out).replace("\n", " ")


def files_under(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for root, dirs, names in os.walk(path):
            dirs[:] = sorted(d for d in dirs if not d.startswith(".") and not d.startswith("build"))
            for name in sorted(names):
                yield os.path.join(root, name)


def mixed_text(paths, size, rnd):
    """About `size` bytes: pieces of the files and of made text in turn."""
    files, room = [], size * 4 // 5
    for path in files_under(paths):
        if room <= 0:
            break
        try:
            with open(path, encoding="utf-8", newline="") as f:
                files.append(f.read(1 << 20))
        except (UnicodeDecodeError, OSError):
            continue
        room -= len(files[-1])
    rnd.shuffle(files)
    hanzi = lambda n: "".join(chr(rnd.randint(0x4E00, 0x9FFF)) if rnd.random() < 0.9 else rnd.choice("，。！？\n") for _ in range(n))
    emoji = lambda n: "".join(chr(rnd.randint(0x1F300, 0x1FAFF)) + rnd.choice(["", " ", "\u200d", "\ufe0f"]) for _ in range(n))
    control = lambda n: "".join(chr(rnd.choice([*range(32), 0x7F, 0x85, 0xA0, 0x200B, 0x2028, 0xFEFF])) for _ in range(n))
    out, done, at = [], 0, 0
    while done < size:
        text = files[at % len(files)] if files else ""
        made = [hanzi(2000), "".join(random_line(rnd) for _ in range(60)), emoji(100), control(40), "=" * rnd.randrange(300), str(rnd.getrandbits(400))]
        text += rnd.choice(made) + rnd.choice(["\n", " ", "\n\n", ""])
        out.append(text)
        done += len(text.encode())
        at += 1
    return "".join(out)


def trained(sample, size=8000):
    """Small tokenizers of each kind."""
    byte_level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    split = lambda regex: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level(False)])
    kinds = {"gpt2": (None, byte_level(True)), "llama3": (None, split(LLAMA3)), "qwen2": (normalizers.NFC(), split(LLAMA3.replace("{1,3}", ""))),
             "qwen3.5": (normalizers.NFC(), split(QWEN35))}
    for name, (normalizer, pre) in kinds.items():
        t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        if normalizer:
            t.normalizer = normalizer
        t.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>"],
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        yield name, t
    for name in ("llama2", "mistral"):
        t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)  # learns within words
        specials = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
        t.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=specials, limit_alphabet=min(1000, size // 8)))
        j = json.loads(t.to_str())
        j["added_tokens"] = j["added_tokens"][:3]
        if name == "llama2":
            j["pre_tokenizer"] = None
            j["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
        else:
            j["pre_tokenizer"]["split"] = False
        yield name, Tokenizer.from_str(json.dumps(j))


def write_fixtures(folder, text, rnd):
    """tests/data/tokenizers: small tokenizers of each kind, and what ids they give to some lines."""
    lines = [random_line(rnd) for _ in range(50)]
    cases = {"tokenizers": tokenizers.__version__, "lines": lines, "ids": {}}
    for name, t in trained(text.splitlines(keepends=True), 600):
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            f.write(t.to_str())
        cases["ids"][name] = [t.encode(line, add_special_tokens=False).ids for line in lines]
    with open(os.path.join(folder, "cases"), "w", encoding="utf-8") as f:
        json.dump(cases, f)


def learned(program, folder, text, named, size=4000):
    """Whether the tokenizers learned here and there have the same pieces and merges."""
    same = True
    for name, hf in named:
        if name in ("llama2", "mistral"):
            continue
        pre, hf = hf.pre_tokenizer, Tokenizer(models.BPE())  # without added tokens, which it would cut out of the text
        hf.pre_tokenizer = pre
        start = time.time()
        hf.train_from_iterator([text], trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        theirs_seconds = time.time() - start
        theirs = json.loads(hf.to_str())["model"]
        out = os.path.join(folder, "learned.json")
        args = [program, "learn", os.path.join(folder, "learn"), out, str(size + 1), name, "1"]
        seconds = float(subprocess.run(args, check=True, capture_output=True, text=True).stdout.split()[0])
        with open(out, encoding="utf-8") as f:
            mine = json.load(f)["model"]
        ok = mine["vocab"] == theirs["vocab"] and [tuple(m.split(" ")) for m in mine["merges"]] == [tuple(m) for m in theirs["merges"]]
        print("%-10s learned %d pieces from %.1f MB: %s   %.1f s here, %.1f s there" %
              (name, len(mine["vocab"]), len(text.encode()) / 1e6, "the same" if ok else "DIFFERENT", seconds, theirs_seconds))
        same &= ok
    return same


def run(program, tokenizer, text, how, threads, folder):
    ids = os.path.join(folder, "ids")
    out = subprocess.run([program, tokenizer, text, ids, how, str(threads)], check=True, capture_output=True, text=True).stdout
    with open(ids, "rb") as f:
        return memoryview(f.read()).cast("i").tolist(), float(out.split()[0])


def compare(name, mine, theirs):
    if mine == theirs:
        return True
    at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
    print("  %s: DIFFER at %d of %d: %s here, %s there" % (name, at, len(theirs), mine[at:at + 8], theirs[at:at + 8]))
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="bench_tokenizer")
    parser.add_argument("--fixtures", metavar="FOLDER", help="write those of the tests there instead")
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--sample-mb", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("tokenizers", nargs="*")
    args = parser.parse_args()
    rnd = random.Random(args.seed)
    lines = [random_line(rnd) for _ in range(10000)]
    text = mixed_text(args.text or [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")], int(args.mb * (1 << 20)), rnd)
    if args.fixtures:
        return write_fixtures(args.fixtures, text, rnd)
    # Pieces of 1 MiB; the cuts are at no special place.
    step = max(1, round(len(text) / max(1, args.mb)))
    documents = [text[at:at + step] for at in range(0, len(text), step)]
    size = len(text.encode()) / 1e6
    threads = len(os.sched_getaffinity(0))
    print("tokenizers %s, %d threads, %.1f MiB of mixed text" % (tokenizers.__version__, threads, len(text.encode()) / (1 << 20)))
    same = True
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        with open(path("lines"), "w", encoding="utf-8", newline="") as f:
            f.write("".join(line + "\n" for line in lines))
        with open(path("text"), "w", encoding="utf-8", newline="") as f:
            f.flush()
            for document in documents:
                f.buffer.write(document.encode() + b"\xff")
        named = []
        for file in args.tokenizers:
            named.append((os.path.basename(os.path.dirname(os.path.abspath(file))), file))
        if not named:
            small = list(trained(text[:4 << 20].splitlines(keepends=True)))
            sample = normalizers.NFC().normalize_str(text[:4 << 20])  # no normalizer when learning here
            with open(path("learn"), "w", encoding="utf-8", newline="") as f:
                f.write(sample)
            same &= learned(args.program, folder, sample, small)
            for name, t in small:
                os.makedirs(path(name))
                t.save(path(name + "/tokenizer.json"))
                named.append((name, path(name + "/tokenizer.json")))
        for name, file in named:
            hf = Tokenizer.from_file(file)
            mine, _ = run(args.program, file, path("lines"), "lines", 1, folder)
            theirs = []
            for line in lines:
                theirs += hf.encode(line, add_special_tokens=False).ids + [-1]
            ok = compare(name + ", lines", mine, theirs)

            # Special tokens are text, as in `data prepare`.
            hf.encode_special_tokens = True
            one, one_seconds = run(args.program, file, path("text"), "documents", 1, folder)
            many, many_seconds = run(args.program, file, path("text"), "documents", threads, folder)
            ok &= compare(name + ", threads", many, one)
            theirs, batch_seconds = [], 0
            for at in range(0, len(documents), 8):
                start = time.time()
                batch = hf.encode_batch_fast(documents[at:at + 8], add_special_tokens=False)
                batch_seconds += time.time() - start
                for encoding in batch:
                    theirs += encoding.ids + [-1]
            ok &= compare(name + ", text", one, theirs)
            best = 0
            sample = documents[:args.sample_mb]
            for texts in (sample, [line for d in sample for line in d.splitlines(keepends=True)]):
                start = time.time()
                for t in texts:
                    hf.encode(t, add_special_tokens=False)
                best = max(best, sum(len(d.encode()) for d in sample) / 1e6 / (time.time() - start))
            print("%-10s ids %s   MB/s: %.1f on one thread, tokenizers %.1f; %.1f on %d threads, tokenizers %.1f   %.2f bytes a token" %
                  (name, "equal" if ok else "DIFFER", size / one_seconds, best, size / many_seconds, threads, size / batch_seconds,
                   size * 1e6 / max(1, len(one))), flush=True)
            same &= ok
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
