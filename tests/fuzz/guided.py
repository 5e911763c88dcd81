"""Let coverage guide the fuzzer, with atheris: inputs that reach new lines of sitar are kept, and changed further.

`PYTHONPATH=src:tests python -m fuzz.guided "set" -runs=20000` tries so many inputs on one parser. Options with one dash
are libFuzzer's. Bad inputs are printed and counted, and do not stop it. It needs `pip install atheris`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["sitar", "values", "records"], enable_loader_override=False):
    from fuzz.driver import OK, REFUSED, tried
    from fuzz.parsers import PARSERS
    from helpers import toys


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder, toys.entered():
        place, corpus = Path(folder) / "place", Path(folder) / "corpus"
        place.mkdir()
        corpus.mkdir()
        parser = PARSERS[name].make(place)
        for number, seed in enumerate(parser.seeds):
            (corpus / str(number)).write_bytes(seed)
        counts: Counter[str] = Counter()

        def try_one(content: bytes) -> None:
            how, error, where = tried(parser, content)
            counts[how] += 1
            if counts.total() % 1000 == 0:  # libFuzzer ends the process itself
                print(f"{name}: {dict(counts)}", flush=True)
            if how not in (OK, REFUSED):
                print(f"BAD {where} {error}: {content[:200]!r}", flush=True)

        def change(content: bytes, most: int, seed: int) -> bytes:
            """Change content that can be read by its structure half of the time, and bytes otherwise."""
            random = Random(seed)
            if random.random() < 0.5:
                try:
                    return parser.wrong(random, content)[:most]
                except Exception:  # the content is too damaged to have a structure
                    pass
            return atheris.Mutate(content, most)

        arguments = ["fuzz", "-verbosity=0", "-rss_limit_mb=0", f"-max_len={4 * max(map(len, parser.seeds)) + 1000}"]
        atheris.Setup([*arguments, *options, str(corpus)], try_one, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
