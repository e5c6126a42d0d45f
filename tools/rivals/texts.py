"""Cuts the texts of a comparison into sequences of token ids.

    python texts.py CHECKPOINT TEXTS DATA WINDOWS

DATA/calibration.json gets the sequences of the calibration. DATA/calibration.ids has the same for gq, and sequences on
which gq measures its file. DATA/eval.json has the windows that the judge reads: WINDOWS of each text.
"""

import json
import os
import sys

from transformers import AutoTokenizer

LENGTH = 256  # tokens of a sequence, BOS included
CALIBRATION, HELD_OUT = 16, 2  # sequences of each text


def main():
    checkpoint, texts, data, count = sys.argv[1:]
    count = int(count)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    bos, end = [tokenizer.bos_token_id], tokenizer.eos_token_id  # gq begins each sequence with BOS
    if "<|endoftext|>" in tokenizer.get_vocab():
        end = tokenizer.convert_tokens_to_ids("<|endoftext|>")  # gq ends sequences here

    def sequences(name, first, last):
        """The sequences of a part of a text, which is given in hundredths."""
        with open(os.path.join(texts, name), encoding="utf-8") as f:
            text = f.read().replace("<|endoftext|>", "\n")
        ids = tokenizer(text[len(text) * first // 100:len(text) * last // 100], add_special_tokens=False)["input_ids"]
        n = LENGTH - len(bos)
        return [bos + ids[i:i + n] for i in range(0, len(ids) - n + 1, n)]

    def spread(windows):
        return [windows[len(windows) * (2 * i + 1) // (2 * count)] for i in range(count)]

    stories, articles = sequences("tinystories-val-300stories.txt", 0, 40), sequences("wikitext2-test.txt", 0, 40)
    calibration = [*stories[:CALIBRATION], *articles[:CALIBRATION]]
    last = CALIBRATION + HELD_OUT
    held_out = [*stories[CALIBRATION:last], *articles[CALIBRATION:last]]
    evaluation = {"books": spread(sequences("books-heldout.txt", 0, 100)),
                  "wikitext": spread(sequences("wikitext2-test.txt", 50, 100))}
    os.makedirs(data, exist_ok=True)
    for name, value in ("calibration", calibration), ("eval", evaluation):
        with open(os.path.join(data, name + ".json"), "w") as f:
            json.dump(value, f)
    with open(os.path.join(data, "calibration.ids"), "w") as f:
        for ids in [*calibration, *held_out]:  # gq calibrates on 8192 tokens, 32 sequences, unless told otherwise
            f.write(" ".join(map(str, [*ids, end])) + "\n")
    print(f"calibration: {len(calibration)} sequences; evaluation:", {k: len(v) for k, v in evaluation.items()}, "BOS", bos)


main()
