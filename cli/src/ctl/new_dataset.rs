//! The options that `pack` and `tokenize` have alike: what a new dataset is called, how it is ordered and divided, and what happens if it
//! is there.

use spdl_dataset::{DatasetReport, PackOrder, PackPart};
use spdl_types::size::parse_bytes;

/// Arguments about a new dataset.
#[derive(Debug, clap::Args)]
pub(super) struct NewDatasetArgs {
    /// Name of the dataset; the last part of its URL when not given.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Seed of the order of the records.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keeps the source's order. Where records that are alike follow each other, as those of a class do, each block then holds few kinds,
    /// which makes the shuffle during training coarse.
    #[arg(long)]
    no_shuffle: bool,
    /// About the size of a shard; of tokens, that is a `.bin`, or a `.ds` with its masks.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(super) shard_size: u64,
    /// Size of a block, the unit of shuffle, fetch and cache.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_bytes)]
    pub(super) block_size: u64,
    /// Does nothing if a dataset is there, and prints its report, whatever it was made of.
    #[arg(long, conflicts_with = "force")]
    exist_ok: bool,
    /// Makes only part I of N, from 0 to N-1, on any machine. A part that was killed goes on where it ended. When all parts are there,
    /// `spdl-ctl merge` makes the dataset of them.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["force", "exist_ok"])]
    pub(super) part: Option<PackPart>,
    /// Prints the report as one line of JSON, and no progress.
    #[arg(long)]
    pub(super) json: bool,
}

impl NewDatasetArgs {
    /// Returns the order of the records.
    pub(super) const fn order(&self) -> PackOrder {
        if self.no_shuffle { PackOrder::AsListed } else { PackOrder::Shuffled { seed: self.seed } }
    }

    /// Returns the report about the dataset that is there already, if that is all that is asked for.
    pub(super) async fn existing(&self, dataset: &str) -> Option<DatasetReport> {
        if self.exist_ok { DatasetReport::of_existing(dataset).await } else { None }
    }
}
