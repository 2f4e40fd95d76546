"""The corpus file of corpus.py and the batches drawn from it."""

import io
import lzma

import numpy as np

# Token ids are pairs of bytes, so the compressor is told to look at every second byte.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 3, "lp": 1, "pb": 1, "dict_size": 1 << 26}]


def encode(texts, bpe):
    """Token ids of the documents, each followed by <end>."""
    end = bpe.token_to_id("<end>")
    ids = []
    for start in range(0, len(texts), 256):
        for encoding in bpe.encode_batch(texts[start : start + 256]):
            ids.append(np.array([*encoding.ids, end], np.uint16))
    return np.concatenate(ids)


def write(path, parts, bpe):
    """Tokenises {"train": texts, "held_out": texts} and writes the file; its size in bytes."""
    if bpe.get_vocab_size() > 1 << 16:
        raise ValueError(f"the vocabulary has {bpe.get_vocab_size()} entries; token ids are 16 bits")
    arrays = {name: encode(texts, bpe) for name, texts in parts.items()}
    arrays["bytes"] = np.array([sum(len(t.encode()) for t in parts[n]) for n in ("train", "held_out")])
    arrays["vocabulary"] = np.array(bpe.get_vocab_size())
    arrays["tokenizer"] = np.frombuffer(bpe.to_str().encode(), np.uint8)
    raw = io.BytesIO()
    np.savez(raw, **arrays)
    path.write_bytes(lzma.compress(raw.getvalue(), lzma.FORMAT_XZ, filters=FILTERS))
    return path.stat().st_size


class Corpus:
    """Token ids of a corpus file. `train`, `held_out`: uint16; `vocabulary`: their number, rounded up to 128."""

    def __init__(self, path):
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as file:
            self.train, self.held_out = file["train"], file["held_out"]
            self.train_bytes, self.held_out_bytes = (int(n) for n in file["bytes"])
            self.vocabulary = -(-int(file["vocabulary"]) // 128) * 128

    @property
    def bytes_per_token(self):
        """Bytes of held-out text that a token stands for: nats a token over this are nats a byte."""
        return self.held_out_bytes / len(self.held_out)

    def starts(self, steps, sequences, length, seed):
        """[steps, sequences] positions in `train`: the corpus cut into windows, shuffled anew each epoch by `seed`.

        A pure function of its arguments, so every recipe sees the same data and a resumed run goes on exactly.
        """
        windows = (len(self.train) - 1) // length
        if windows < 1:
            raise ValueError(f"the training part has {len(self.train)} tokens; sequences of {length} need one more than that")
        epochs = -(-steps * sequences // windows)
        order = [np.random.default_rng([seed, epoch]).permutation(windows) for epoch in range(epochs)]
        return np.concatenate(order)[: steps * sequences].reshape(steps, sequences) * length

    def held_out_batches(self, sequences, length, batches):
        """[batches, sequences, length + 1] ids, the same for every run."""
        count = sequences * batches
        if len(self.held_out) < count * length + 1:
            raise ValueError(f"the held-out part has {len(self.held_out)} tokens; {batches} batches need {count * length + 1}")
        starts = np.arange(count) * ((len(self.held_out) - 1) // count)
        rows = [self.held_out[s : s + length + 1] for s in starts]
        return np.stack(rows).astype(np.int64).reshape(batches, sequences, length + 1)
