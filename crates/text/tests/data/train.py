"""Makes `tokenizer.json`, the tokenizer of the tests, from this repository's documentation. usage: train.py (needs `tokenizers` 0.23)"""

import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
DOCS = sorted((HERE.parents[3] / "docs").rglob("*.md"))

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, special_tokens=["<|endoftext|>", "<|user|>"])
tokenizer.train_from_iterator((path.read_text() for path in DOCS), trainer)
tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)
