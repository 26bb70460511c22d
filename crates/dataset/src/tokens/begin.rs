//! Checks that files of tokens may be written into a folder, and records that they are.

use spdl_shard::store::DatasetStore;

use super::build::{remove_plan_and_runs, remove_runs};
use crate::{
    DatasetError, Listing, Overwrite,
    folder::in_use,
    replace::{
        ALL_RUNS, ALL_TOKENS, Runs, UNFINISHED_TITLE, is_metadata, put_unfinished, recover_and, refuse_manifest,
        remove_unfinished, unfinished,
    },
};

/// Checks that files of tokens may be written into the folder, removes what a killed run left behind, and records what this run may
/// leave.
pub(crate) async fn begin_tokens(to: &DatasetStore, overwrite: Overwrite) -> Result<(), DatasetError> {
    check_for_tokens(to, overwrite, Runs::Remove).await?;
    put_unfinished(to, format!("{UNFINISHED_TITLE}\n{}\n", ALL_TOKENS.join("\n"))).await
}

async fn check_for_tokens(to: &DatasetStore, overwrite: Overwrite, runs: Runs) -> Result<(), DatasetError> {
    match overwrite {
        Overwrite::Refuse => refuse_manifest(to).await?,
        Overwrite::Replace if recover_and(to, runs).await?.is_some() => {
            let problem = "removes what a killed command left, and does not replace a dataset by files of tokens: write them to another \
                           folder";
            return Err(DatasetError::Option { option: "force", problem: problem.to_owned() });
        }
        Overwrite::Replace => {}
    }
    let suffixes = || ALL_TOKENS.iter().filter_map(|pattern| pattern.strip_prefix("shard-*"));
    let is_tokens = |name: &str| suffixes().any(|suffix| name.ends_with(suffix));
    if let Some(file) = Listing::of(to, |name| !is_metadata(name) && is_tokens(name)).await?.iter().next() {
        return in_use(to, file.name);
    }
    Ok(())
}

/// Checks like [`begin_tokens`] that files of tokens may be built in the folder. Runs that are there stay, since those that fit are used.
pub(crate) async fn begin_runs(to: &DatasetStore, overwrite: Overwrite) -> Result<(), DatasetError> {
    let has_begun = unfinished(to).await?.is_some_and(|list| list.is_of_runs());
    check_for_tokens(to, if has_begun { Overwrite::Replace } else { overwrite }, Runs::Keep).await?;
    put_unfinished(to, format!("{UNFINISHED_TITLE}\n{}\n{ALL_RUNS}\n", ALL_TOKENS.join("\n"))).await
}

/// Removes everything that building files of tokens has written besides these. The plan is the last, since by it the same command
/// knows that it has only this left to do.
pub(crate) async fn end_runs(to: &DatasetStore) -> Result<(), DatasetError> {
    remove_runs(to).await?;
    remove_unfinished(to).await?;
    remove_plan_and_runs(to).await
}
