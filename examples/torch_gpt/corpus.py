#!/usr/bin/env python3
"""Makes the text that torch_gpt.py trains on: real English documentation, tokenised, in one compressed file.

    python3 examples/torch_gpt/corpus.py --out corpus.xz                 # Debian packages below, about 100 MB to fetch
    python3 examples/torch_gpt/corpus.py --out corpus.xz --text notes/   # your own .txt, .md, .rst and .html files

Needs the packages `tokenizers` and `numpy`, and for the first form Debian's apt-get and dpkg-deb. Nothing of the text is
part of this repository. The file holds token ids of a byte-level BPE that is trained on the training part alone, and the
held-out part: whole documents, chosen by a hash of their names.
"""

import argparse
import fnmatch
import gzip
import hashlib
import html
import pathlib
import re
import subprocess
import sys
import tempfile

import data

# Package, version that the figures in docs/measured.md were made with, and the files that are English text.
PACKAGES = """
linux-doc-6.1          6.1.192-3                *.rst.txt *.txt.gz
python3.11-doc         3.11.2-6+deb12u9         *.rst.txt
anarchism              15.3-3                   *.md.gz
postgresql-doc-15      15.20-0+deb12u1          *.html
debian-reference-en    2.100                    *.html
debian-handbook        11.20220922              */en-US/*.html
developers-reference   12.18                    *.html
git-doc                1:2.39.5-0+deb12u3       *.txt
vim-doc                2:9.0.1378-2+deb12u2     *.html
perl-doc               5.36.0-7+deb12u4         *.pod
sqlite3-doc            3.40.1-2+deb12u2         *.html
erlang-doc             1:25.2.3+dfsg-1+deb12u1  *.html
cmake-doc              3.25.1-1                 *.rst.txt *.html
python-django-doc      3:3.2.25-0+deb12u7       *.html
python-sqlalchemy-doc  1.4.46+ds1-1             *.html
nodejs-doc             18.20.4+dfsg-1~deb12u3   *.html *.md
apache2-doc            2.4.71-1~deb12u1         *.html *.html.en
zsh-doc                5.9-4                    *.html
gimp-help-en           2.10.34-2                *.html
octave-doc             7.3.0-2                  *.html
"""
OWN = ("*.txt", "*.md", "*.rst", "*.html")
VOCABULARY = 16384
HELD_OUT = 1 / 32
BLOCK_TAGS = "p|div|br|li|tr|h[1-6]|pre|dt|dd|table|section|ul|ol|dl|blockquote"


def text_of(path):
    """The text of a file, or None if it is not English text."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8", errors="ignore").replace("\r", "")
    if ".html" in path.name:
        text = re.sub(r"(?is)<(script|style|head|nav|footer)\b.*?</\1>|<!--.*?-->", " ", text)
        text = re.sub(rf"(?i)</?({BLOCK_TAGS})\b[^>]*>", "\n", text)
        text = html.unescape(re.sub(r"<[^>]*>", "", text))
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    text = re.sub(r"\n\s*\n\s*", "\n\n", text).strip()
    foreign = sum(c > "\x7f" for c in text)
    words = len(re.findall(r"\b(?:the|of|and)\b", text))
    return text if len(text) > 500 and foreign < 0.02 * len(text) and words > len(text) / 200 else None


def documents(folder, patterns):
    """(name, text) of the files that match, in the order of their names."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and any(fnmatch.fnmatch(name, p) for p in patterns):
            text = text_of(path)
            if text:
                yield name, text


def packages(folder):
    """Fetches and unpacks the packages; yields (name, text) of their documents."""
    for line in PACKAGES.strip().splitlines():
        name, version, *patterns = line.split()
        place = folder / name
        if not place.exists():
            fetch(name, version, folder)
            (archive,) = folder.glob(f"{name}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, place], check=True)
        before = total = 0
        for document, text in documents(place, patterns):
            before, total = before + 1, total + len(text)
            yield f"{name}/{document}", text
        print(f"{name}: {before} documents, {total / 1e6:.1f} MB", file=sys.stderr)


def fetch(name, version, folder):
    """The package at its pinned version, else the one that is there now, said in one line."""
    if subprocess.run(["apt-get", "download", "-q", f"{name}={version}"], cwd=folder, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode:  # fmt: skip
        print(f"{name} {version} is not to be had; taking the current version", file=sys.stderr)
        subprocess.run(["apt-get", "download", "-q", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def unrepeated(text, seen):
    """`text` without the paragraphs that an earlier document had (page headers, licences, copies)."""
    kept = []
    for paragraph in text.split("\n\n"):
        key = hashlib.blake2b(paragraph.strip().encode(), digest_size=8).digest()
        if len(paragraph) < 40 or key not in seen:
            kept.append(paragraph)
        seen.add(key)
    return "\n\n".join(kept)


def held_out(name, share):
    """Whether a document belongs to the held-out part."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) < share * 2**32


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, help="a folder of your own text instead of Debian's packages")
    parser.add_argument("--cache", type=pathlib.Path, help="where packages are kept between runs")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--held-out", type=float, default=HELD_OUT, help="share of the documents")
    options = parser.parse_args()
    from tokenizers import ByteLevelBPETokenizer

    with tempfile.TemporaryDirectory() as scratch:
        cache = options.cache or pathlib.Path(scratch)
        source = documents(options.text, OWN) if options.text else packages(cache)
        seen, parts = set(), {"train": [], "held_out": []}
        for name, text in source:
            text = unrepeated(text, seen)
            if len(text) > 300:
                parts["held_out" if held_out(name, options.held_out) else "train"].append(text)
    if not all(parts.values()):
        parser.error(f"too little text: {len(parts['train'])} training and {len(parts['held_out'])} held-out documents")
    for name, texts in parts.items():
        print(f"{name}: {len(texts)} documents, {sum(map(len, texts)) / 1e6:.1f} MB", file=sys.stderr)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(parts["train"], vocab_size=options.vocabulary, min_frequency=2, special_tokens=["<end>"], show_progress=False)
    size = data.write(options.out, parts, bpe)
    print(f"{options.out}: {size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
