//! The examples below each subcommand's help. A test parses each of them as the program would.

pub(super) const DEMO: &str = "Examples:
  spdl-ctl demo
  spdl-ctl demo --images 500 --epochs 1 --json";

pub(super) const DEV: &str = "Examples:
  spdl-ctl dev up train.toml --workers 2
  spdl-ctl dev status
  spdl-ctl dev down";

pub(super) const PICTURES: &str = "Examples:
  spdl-ctl pictures pictures --count 2000";

pub(super) const PACK: &str = "Examples:
  spdl-ctl pack imagenet/train s3://bucket/imagenet/train     # a folder of class folders
  spdl-ctl pack files.tsv dataset                             # a path, a tab and a label on each line
  spdl-ctl pack imagenet/train s3://bucket/train --part 3/8   # part 3 of 0 to 7, on any machine; then `merge`
  spdl-ctl pack tokens corpus --to megatron --vocab 50257     # a dataset of tokens as Megatron's files";

pub(super) const TOKENIZE: &str = "Examples:
  spdl-ctl tokenize web.jsonl.zst corpus --tokenizer tokenizer.json
  spdl-ctl tokenize 's3://bucket/text/*.parquet' s3://bucket/corpus --tokenizer model --from body --append '<|endoftext|>'
  spdl-ctl tokenize chats dialogues --tokenizer model --chat --show 3     # conversations, of which three are printed first
  spdl-ctl tokenize texts corpus --tokenizer tokenizer.json --part 3/8   # part 3 of 0 to 7, on any machine; then `merge`";

pub(super) const MERGE: &str = "Examples:
  spdl-ctl merge s3://bucket/train";

pub(super) const INDEX: &str = "Examples:
  spdl-ctl index s3://bucket/webdataset
  spdl-ctl index s3://bucket/photos --table captions.tsv      # loose files, with fields from a table
  spdl-ctl index https://host/shards --out manifest           # where the shards' folder cannot be written";

pub(super) const INFO: &str = "Examples:
  spdl-ctl info dataset                                       # looks at 256 records
  spdl-ctl info s3://bucket/train --all --json";

pub(super) const VERIFY: &str = "Examples:
  spdl-ctl verify dataset
  spdl-ctl verify dataset --against imagenet/train            # and every picture with its original";

pub(super) const UNPACK: &str = "Examples:
  spdl-ctl unpack dataset files";

pub(super) const PLAN: &str = "Examples:
  spdl-ctl plan job.toml --world 64 --ranks-per-node 8        # what the order costs in cache and downloads
  spdl-ctl plan job.toml --world 4 --rank 1 --steps 2 --ids   # the samples of each step";

pub(super) const PROFILE: &str = "Examples:
  spdl-ctl profile job.toml                                   # each part of the pipeline, and what limits it
  spdl-ctl profile job.toml --step-ms 180 --world 16 --ranks-per-node 8
  spdl-ctl profile job.toml --rate 2500 --cores 40% --json";

pub(super) const WARM: &str = "Examples:
  spdl-ctl warm job.toml --cache-dir /var/cache/spdl --cache-bytes 2TiB
  spdl-ctl warm job.toml --cache-dir /scratch/spdl --world 16 --ranks-per-node 8 --node 1";

pub(super) const PULL: &str = "Examples:
  spdl-ctl pull --coord node-0:7400 --job train --certs certs/client
  spdl-ctl pull --coord node-0:7400 --job train --certs certs/client --rank 1 --world 4 --steps 100 --json
  spdl-ctl pull --coord node-0:7400 --job train --certs certs/client --trace rank-0.jsonl --rate 500";

pub(super) const REPLAY: &str = "Examples:
  spdl-ctl replay job.toml --from 0:640 --out spike           # the batch at which the loss had a spike
  spdl-ctl replay job.toml --all --json                       # receipt and content digest of the whole job";

pub(super) const INSPECT: &str = "Examples:
  spdl-ctl inspect job.toml --tokenizer model                 # the first sequence, as the model sees it
  spdl-ctl inspect job.toml --tokenizer tokenizer.json --from 0:640 --sequences 8 --html spike.html";

pub(super) const AUDIT: &str = "Examples:
  spdl-ctl audit job.toml --steps 100 --receipt 0123456789abcdef0123456789abcdef
  spdl-ctl audit job.toml --trace rank-0.jsonl --trace rank-1.jsonl
  spdl-ctl audit --run train --coord node-0:7400 --certs certs/client   # receipts and bad samples from the coordinator";

pub(super) const STATUS: &str = "Examples:
  spdl-ctl status --coord node-0:7400 --certs certs/admin
  spdl-ctl status --coord node-0:7400 --certs certs/admin -v      # stages and stores of workers, sessions that have ended
  spdl-ctl status --coord node-0:7400 --certs certs/admin --json  # all statistics";

pub(super) const TOP: &str = "Examples:
  spdl-ctl top --coord node-0:7400 --certs certs/admin
  spdl-ctl top --coord node-0:7400 --certs certs/admin --interval 5
  spdl-ctl top --coord node-0:7400 --certs certs/admin --once     # one frame as text, for scripts";

pub(super) const SCALE: &str = "Examples:
  spdl-ctl scale --dry-run --coord node-0:7400 --certs certs/admin
  spdl-ctl scale --dry-run --coord node-0:7400 --certs certs/admin --worker-cores 16 --min 2 --max 40 --json";

pub(super) const COMPARE: &str = "Examples:
  spdl-ctl compare base.json run.json --at-most 5%                    # in a build: exit code 1 if a figure is worse by more
  spdl-ctl compare base.json run.json --at-most rate=10% --at-most cpu=5%
  spdl-ctl compare lr-1 lr-2 --coord node-0:7400 --certs certs/admin  # two runs of a cluster";

pub(super) const TRACE: &str = "Examples:
  spdl-ctl trace --coord node-0:7400 --certs certs/admin --out trace.json    # ten seconds; open it in https://ui.perfetto.dev
  spdl-ctl trace --coord node-0:7400 --certs certs/admin --job train --seconds 30 --out trace.json";

pub(super) const JOB: &str = "Examples:
  spdl-ctl job init dataset --validation valset                   # writes train.toml and val.toml
  spdl-ctl job submit job.toml --coord node-0:7400 --certs certs/admin
  spdl-ctl job submit train.toml --replace                        # an edited job, in the cluster of `dev up`
  spdl-ctl job list --coord node-0:7400 --certs certs/admin
  spdl-ctl job show train --coord node-0:7400 --certs certs/admin
  spdl-ctl job schema                                             # for editors: `#:schema job.schema.json`";

pub(super) const RUN: &str = "Examples:
  spdl-ctl run list --coord node-0:7400 --certs certs/admin
  spdl-ctl run show lr-3e-4 --coord node-0:7400 --certs certs/admin --json   # for `compare`
  spdl-ctl run reset lr-3e-4 --coord node-0:7400 --certs certs/admin
  spdl-ctl run reset train/lr-3e-4 --coord node-0:7400 --certs certs/admin --yes";

pub(super) const CERT: &str = "Examples:
  spdl-ctl cert --ca state/ca --role client --name trainer --out certs/client";

pub(super) const COMPLETIONS: &str = "Examples:
  spdl-ctl completions bash    # put it in ~/.local/share/bash-completion/completions/spdl-ctl
  spdl-ctl completions zsh     # put it in a folder of $fpath as _spdl-ctl";

pub(super) const MAN: &str = "Examples:
  spdl-ctl man ~/.local/share/man/man1    # then: man spdl-ctl-pull";

pub(super) const COORD: &str = "Examples:
  spdl-ctl coord --listen 0.0.0.0:7400 --state state
  spdl-ctl coord --state etcd://etcd:2379/spdl --ca ca        # one of several";

pub(super) const WORKER: &str = "Examples:
  spdl-ctl worker --coord node-0:7400 --certs certs/worker --cores 16 --memory 32GiB";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::ctl::CtlCli;

    #[test]
    fn every_subcommand_has_examples_and_each_of_them_can_be_typed() {
        let mut cli = CtlCli::command();
        cli.build();
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = command.get_name();
            let text = command.get_after_help().unwrap_or_else(|| panic!("`{name}` has no examples")).to_string();
            let examples = text.lines().filter_map(|line| line.strip_prefix("  spdl-ctl "));
            let mut count = 0;
            for example in examples {
                let words = example.split(" #").next().unwrap_or_default().split_whitespace();
                let read = CtlCli::try_parse_from(std::iter::once("spdl-ctl").chain(words));
                read.unwrap_or_else(|error| panic!("{example}: {error}"));
                assert!(example.starts_with(name), "`{example}` is no example of `{name}`");
                count += 1;
            }
            assert!(count > 0, "`{name}` has no examples");
        }
    }
}
