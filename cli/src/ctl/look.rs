//! The arguments that choose the records of a dataset to look at, for `info` and `job init`.

use spdl_dataset::LookAt;

use crate::suggest::RECORDS;

/// Which records are looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct LookArgs {
    /// Records to look at, spread over the dataset; fewer where they are large.
    #[arg(long, value_name = "COUNT", default_value_t = RECORDS, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Looks at all records, which reads the whole dataset.
    #[arg(long, conflicts_with = "records")]
    all: bool,
}

impl LookArgs {
    /// Returns these records.
    pub(crate) const fn which(&self) -> LookAt {
        if self.all { LookAt::All } else { LookAt::Spread(self.records) }
    }
}
