"""Makes data/tests/fixtures/near_duplicates.json: near-duplicates that datasketch finds in a few documents, for our tests to reproduce.

    python tools/make_near_duplicate_fixtures.py [FILE]

Needs datasketch (2.0.0 made the file in the repository). Documents are made-up prose and variants of it: words replaced, a
paragraph added or moved, other capitals, line ends and punctuation, one in French, one in Chinese. `jaccard` has, for every pair
that shares a run of five words, the exact Jaccard similarity of their sets of runs (`exact`) and the estimate of datasketch's
MinHash with 256 permutations (`estimate`); `groups` has the pairs of MinHashLSH at 0.7, merged. No pair lies between 0.55 and 0.8,
so that a reasonable estimate puts it on the right side.
"""

import itertools
import json
import random
import re
import sys
from pathlib import Path

from datasketch import MinHash, MinHashLSH

ROOT = Path(__file__).parent.parent
WORDS, THRESHOLD, PERMUTATIONS = 5, 0.7, 256
ENGLISH = """the a of and to in it was he she they had with for as on at by from this that ship harbour winter letter garden window
candle river bread stone morning evening brother sister teacher market summer road horse field cloud storm lamp table chair
wrote walked said found lost bought sold carried opened closed waited returned forgot remembered asked answered laughed""".split()
FRENCH = "été hiver élève école forêt âme cœur garçon leçon où déjà très après œuvre fenêtre lumière rivière mère père".split()
CHINESE = "春眠不觉晓处处闻啼鸟夜来风雨声花落知多少床前明月光疑是地上霜举头望明月低头思故乡"


def prose(rng, words, vocabulary=ENGLISH):
    text = []
    while len(text) < words:
        sentence = rng.choices(vocabulary, k=rng.randint(5, 15))
        sentence[0] = sentence[0].capitalize()
        sentence[-1] += rng.choice(".?!")
        text += sentence
    return text


def exchanged(rng, text, words):
    places = rng.sample(range(10, len(text) - 10), words)
    return [rng.choice(ENGLISH) if place in places else word for place, word in enumerate(text)]


def documents(rng):
    for length in (120, 200, 400, 900):
        text = prose(rng, length)
        yield " ".join(text)
        yield " ".join(exchanged(rng, text, 1 + length // 400))
        yield " ".join(exchanged(rng, text, length // 3))
        yield "\r\n".join(text).upper().replace(".", " --")
        yield " ".join(text[length // 5:] + text[:length // 5] + prose(rng, length // 20)[:length // 40])
        yield " ".join(prose(rng, length))
    text = prose(rng, 200, FRENCH)
    yield " ".join(text)
    yield " ".join(text[:60] + ["VOILÀ"] + text[60:]).replace("É", "é")
    text = [rng.choice(CHINESE) for _ in range(300)]
    yield "".join(text)
    yield "，".join("".join(text[at:at + 7]) for at in range(0, 300, 7)) + "。完"


def runs(text):
    # Words of letters and digits; a Chinese character is a word.
    words = re.findall(r"[㐀-鿿]|[^\W_㐀-鿿]+", text.lower())
    return {" ".join(words[at:at + WORDS]) for at in range(len(words) - WORDS + 1)}


def main():
    texts = list(documents(random.Random(7)))
    sets = [runs(text) for text in texts]
    hashes = []
    for these in sets:
        minhash = MinHash(num_perm=PERMUTATIONS, seed=1)
        minhash.update_batch([run.encode() for run in sorted(these)])
        hashes.append(minhash)
    pairs = []
    for one, two in itertools.combinations(range(len(texts)), 2):
        exact = len(sets[one] & sets[two]) / len(sets[one] | sets[two])
        assert not 0.55 < exact < 0.8, (one, two, exact)
        if exact:
            pairs.append({"pair": [one, two], "exact": exact, "estimate": hashes[one].jaccard(hashes[two])})
    lsh = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    for number, minhash in enumerate(hashes):
        lsh.insert(number, minhash)
    group_of = list(range(len(texts)))
    for number, minhash in enumerate(hashes):
        for other in lsh.query(minhash):
            if minhash.jaccard(hashes[other]) >= THRESHOLD:
                old, new = sorted((group_of[number], group_of[other]), reverse=True)
                group_of = [new if group == old else group for group in group_of]
    groups = [[n for n, group in enumerate(group_of) if group == first] for first in sorted(set(group_of))]
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data/tests/fixtures/near_duplicates.json"
    found = {"documents": texts, "jaccard": pairs, "groups": [group for group in groups if len(group) > 1]}
    out.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
