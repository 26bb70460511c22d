"""Runs the commands of the recipes for language models, with the files that they show, on a few hundred documents whose bytes are their tokens."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import needs
from test_adapters import IMPORTS, uneven
from test_language import EOS, write_megatron
from test_recipes import ABSENT, Recipe, needs_torch

pytestmark = pytest.mark.drawn(1, group="trainings on tokens")

HERE = pathlib.Path(__file__).parent
#: What the pages have, and what a test puts in its place.
VOCABULARY = {"50257": str(EOS + 1), "50256": str(EOS)}


def recipe(page: str, folder: pathlib.Path, temporary: pathlib.Path, changes: dict[str, str], documents: int = 150) -> Recipe:
    """Writes the folder of tokens that a page begins with, and indexes it as it says."""
    needs_torch()
    (folder / "tokens").mkdir()
    write_megatron(folder / "tokens", "all", uneven(documents))
    # Programs of this folder, for what has no place on a page.
    made = Recipe(page, folder, temporary, changes, {"PYTHONPATH": str(HERE)})
    assert f"{documents} samples" in made.run("spdl-ctl index tokens")
    return made


def sequences(plan: str) -> int:
    """Returns how many sequences an epoch has."""
    [found] = re.findall(r"([\d ]+) sequences in", plan)
    return int(found.replace(" ", ""))


def test_torchtitan_trains_a_finite_epoch_on_two_ranks_and_then_three(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs("torchtitan", ABSENT)
    changes = {
        "vocab = 128256": f"vocab = {EOS + 1}",
        "seq_len = 8192": "seq_len = 128",
        "= 8192, 10_000": "= 128, 10_000",
        "True, 500, False\n": "True, 3, False\n    config.training.local_batch_size = 2\n    torchtitan_program.for_cpu(config)\n",
        "import spdl_cluster.torchtitan\n": "import spdl_cluster.torchtitan, torchtitan_program\n",
        "-m torchtitan.train": str(HERE / "torchtitan_program.py"),
        "--training.steps 1000": "--training.steps 6",
    }
    page = recipe("torchtitan.md", tmp_path, temporary, changes)
    page.imports(IMPORTS["torchtitan_program.py"])
    count = sequences(page.run("spdl-ctl plan"))
    first = re.findall(r"^step +(\d+): loss", page.run("torchrun"), re.MULTILINE)
    assert first == [str(step) for step in range(1, 7)]
    # Two sequences for each rank.
    steps = -(-(count - 6 * 4) // 6)
    output = page.run("torchrun")
    assert re.findall(r"^step +(\d+): loss", output, re.MULTILINE) == [str(step) for step in range(7, 7 + steps)], (count, output)
    page.end()


def test_trainer_and_trl_train_on_packed_tokens_and_go_on_with_other_ranks(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers", reason=ABSENT)
    needs("trl", ABSENT)
    from trainer_program import word_level

    words = {"<pad>": 0, **{f"<{token}>": token for token in range(1, EOS + 1)}}
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_level(words), pad_token="<pad>", eos_token=f"<{EOS}>").save_pretrained(tmp_path / "tokenizer")
    small = f"vocab_size={EOS + 1}, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2"
    changes = {
        "vocab_size=50257": small,
        **VOCABULARY,
        "seq_len = 4096": "seq_len = 128",
        "global_batch = 32": "global_batch = 4",
        "save_steps=500": "save_steps=2",
        # It asks a device that the tests' torch does not have.
        "import spdl_cluster, spdl_cluster.transformers, torch\n": "import spdl_cluster, spdl_cluster.transformers, torch\ntorch.cuda.is_current_stream_capturing = lambda: False\n",
        " 1000\n": " 4\n",
        " 1500\n": " 6\n",
    }
    page = recipe("trainer-tokens.md", tmp_path, temporary, changes)
    page.imports("transformers.trainer")
    taken = r"^(\d+) sequences for rank \d in this launch$"
    assert re.findall(taken, page.run("torchrun"), re.MULTILINE) == ["16", "16"], "four steps of two batches of four"
    again = page.run("python train.py")
    assert re.findall(taken, again, re.MULTILINE) == ["16"], again
    assert len(re.findall(r"'loss': ", page.run("python sft.py"))) == 4
    page.end()


def test_megatrons_provider_gives_batches_of_the_job(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs("megatron.core.packed_seq_params", ABSENT)
    page = recipe("megatron.md", tmp_path, temporary, {"50257": str(EOS + 1), "seq_len = 4096": "seq_len = 128", "global_batch = 512": "global_batch = 4"})
    assert sequences(page.run("spdl-ctl plan")) > 40
    # As `pretrain` calls it, in a process of its own.
    given = page.run("", "python -c 'import data, megatron_program; megatron_program.show(data.provider, 128, 4)'\n")
    assert "12 sequences in 12 micro-batches" in given, given
    look = page.run("python look.py")
    assert "'tokens': (1, 128)" in look and "qkv_format='thd'" in look and "'max_seqlen': (1,)" in look, look
    page.end()


def test_three_loops_have_the_same_losses(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    for needed in ("accelerate", "lightning"):
        needs(needed, ABSENT)
    changes = {**VOCABULARY, "seq_len = 4096": "seq_len = 128", "global_batch = 64": "global_batch = 6", " 1000\n": " 5\n", "init_process_group()": 'init_process_group("gloo")'}
    page = recipe("loops-tokens.md", tmp_path, temporary, changes)
    losses: list[list[float]] = []
    for imports in ("torch.distributed.fsdp", "accelerate", "lightning"):
        page.imports(imports)
        losses.append([float(loss) for loss in re.findall(r"^loss (\d+\.\d+)$", page.run("torchrun"), re.MULTILINE)])
    page.end()
    assert len(losses[0]) == 5 and losses[0][-1] < losses[0][0] - 0.3, losses
    assert losses[1] == pytest.approx(losses[0], abs=2e-3) and losses[2] == pytest.approx(losses[0], abs=2e-3), losses
