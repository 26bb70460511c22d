//! What building files of tokens writes beside the manifest until it ends: the plan, and a run for each unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spdl_shard::{
    manifest::{METADATA_FOLDER, MetadataPlace, TokenizerFacts, in_metadata_folder},
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use super::{DocumentSource, TokenBuildOptions, TokenBuildReport};
use crate::{DatasetError, DatasetReport, PackOrder, in_parts::names::remove_work, tokens::TokenEncoding};

/// The folder that they lie in, with the manifest.
const FOLDER: &str = "tokens";
/// The name of the plan in it.
const PLAN: &str = "runs.json";
/// What the names of runs in it begin with.
const RUN: &str = "run-";
/// The version of these files.
const VERSION: u32 = 1;
/// Size of the longest plan that is read, in bytes: some seven million units.
const MAX_PLAN_BYTES: u64 = 256 << 20;
/// The most units.
const MAX_UNITS: usize = 5_000_000;
/// Number of slices of a shard in the index of a run.
const SLICES: u64 = 16;
/// The most slices that shuffled runs have.
const MAX_SLICES: u64 = 1 << 14;

/// All that decides the bytes of a dataset that is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuildPlan {
    version: u32,
    /// Version of the program.
    program: String,
    pub(super) name: Option<String>,
    vocab: u32,
    has_masks: bool,
    /// The seed, if documents are shuffled.
    pub(super) seed: Option<u64>,
    pub(super) shard_bytes: u64,
    pub(super) block_bytes: u64,
    /// What decides each unit's documents, besides the facts.
    units: Vec<Fingerprint>,
    /// Number of slices that the index of a shuffled run has.
    pub(super) slices: u32,
    tokenizer: Option<PlannedTokenizer>,
    /// The source, in words.
    source: String,
    /// What else decides it, in words.
    facts: BTreeMap<String, String>,
    /// What all runs have together, noted before the manifest is written and runs are removed. It decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    totals: Option<RunTotals>,
}

/// All that decides the bytes of a unit's run.
#[derive(Serialize)]
struct RunIdentity<'p> {
    program: &'p str,
    vocab: u32,
    has_masks: bool,
    seed: Option<u64>,
    slices: u32,
    slice_bytes: u64,
    facts: &'p BTreeMap<String, String>,
    unit: u32,
    fingerprint: Fingerprint,
}

/// What all runs have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunTotals {
    pub(super) documents: u64,
    pub(super) tokens: u64,
    pub(super) empty: u64,
    #[serde(default)]
    pub(super) bad: u64,
}

impl RunTotals {
    /// Adds those of another run.
    pub(super) fn add(&mut self, other: Self) {
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.empty += other.empty;
        self.bad += other.bad;
    }

    /// Returns the report about them.
    pub(super) fn report(self, dataset: DatasetReport, first_bad: Vec<String>) -> TokenBuildReport {
        let Self { tokens, empty, bad, .. } = self;
        TokenBuildReport { dataset, tokens, empty_documents: empty, bad_documents: bad, first_bad }
    }
}

/// What the manifest will note of the tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedTokenizer {
    fingerprint: Fingerprint,
    vocab: u32,
    eos: Option<u32>,
    ends_with_eos: bool,
}

impl BuildPlan {
    pub(super) fn of(source: &dyn DocumentSource, options: &TokenBuildOptions) -> Result<Self, DatasetError> {
        if source.units() > MAX_UNITS {
            let problem =
                format!("cuts the source into {} units, which are more than {MAX_UNITS}: give more", source.units());
            return Err(DatasetError::Option { option: "unit-size", problem });
        }
        let shards = source.token_bytes().div_ceil(options.shard_bytes);
        let slices = shards.saturating_mul(SLICES).clamp(SLICES, MAX_SLICES).next_power_of_two();
        Ok(Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            name: options.name.clone(),
            vocab: options.encoding.vocab(),
            has_masks: options.encoding.has_masks(),
            seed: match options.order {
                PackOrder::Shuffled { seed } => Some(seed),
                PackOrder::AsListed => None,
            },
            shard_bytes: options.shard_bytes,
            block_bytes: options.block_bytes,
            units: (0..source.units()).map(|unit| source.unit_fingerprint(unit)).collect(),
            slices: slices as u32,
            tokenizer: source.tokenizer().map(|TokenizerFacts { fingerprint, vocab, eos, ends_with_eos }| {
                PlannedTokenizer { fingerprint, vocab, eos, ends_with_eos }
            }),
            source: source.source(),
            facts: source.facts(),
            totals: None,
        })
    }

    /// Returns the plan with a note of what all runs have together.
    pub(super) fn with_totals(&self, totals: RunTotals) -> Self {
        Self { totals: Some(totals), ..self.clone() }
    }

    /// Returns the number of units.
    pub(super) fn units(&self) -> u32 {
        self.units.len() as u32
    }

    /// Returns what all runs have together, if that was noted.
    pub(super) fn totals(&self) -> Option<RunTotals> {
        self.totals
    }

    /// Returns how ids are stored.
    ///
    /// # Errors
    /// If the vocabulary of a plan that was read is none.
    pub(super) fn encoding(&self) -> Result<TokenEncoding, DatasetError> {
        let encoding = TokenEncoding::of_vocab(self.vocab)?;
        Ok(if self.has_masks { encoding.with_masks() } else { encoding })
    }

    /// Returns the fingerprint that the run of a unit notes: two runs with the same have the same bytes.
    pub(super) fn fingerprint(&self, unit: u32) -> Fingerprint {
        let Self { program, vocab, has_masks, seed, slices, facts, units, .. } = self;
        let identity = RunIdentity {
            program,
            vocab: *vocab,
            has_masks: *has_masks,
            seed: *seed,
            slices: *slices,
            slice_bytes: self.slice_bytes(),
            facts,
            unit,
            fingerprint: units[unit as usize],
        };
        Fingerprint::of(&serde_json::to_vec(&identity).expect("plain data serialises"))
    }

    /// Returns what the manifest will note of the tokenizer.
    pub(super) fn tokenizer(&self) -> Option<TokenizerFacts> {
        let PlannedTokenizer { fingerprint, vocab, eos, ends_with_eos } = self.tokenizer?;
        Some(TokenizerFacts { fingerprint, vocab, eos, ends_with_eos })
    }

    /// Returns the size from which a slice of a run in order ends, in bytes.
    pub(super) fn slice_bytes(&self) -> u64 {
        (self.shard_bytes / SLICES).max(1)
    }

    /// Returns in words what `other`, of now, has different.
    fn difference(&self, other: &Self) -> Option<String> {
        let differ = |what: &str, mine: String, theirs: String| {
            (mine != theirs).then(|| format!("{what} was {mine}, and is {theirs}"))
        };
        let word = |value: Option<&String>| value.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        let names = self.facts.keys().chain(other.facts.keys());
        let facts =
            names.filter_map(|name| differ(name, word(self.facts.get(name)), word(other.facts.get(name)))).next();
        let order = |seed: Option<u64>| {
            seed.map_or_else(|| "as listed".to_owned(), |seed| format!("shuffled with seed {seed}"))
        };
        differ("the source", self.source.clone(), other.source.clone())
            .or(facts)
            .or_else(|| differ("the version of the program", self.program.clone(), other.program.clone()))
            .or_else(|| differ("the vocabulary", self.vocab.to_string(), other.vocab.to_string()))
            .or_else(|| differ("the order", order(self.seed), order(other.seed)))
            .or_else(|| differ("the size of shards", self.shard_bytes.to_string(), other.shard_bytes.to_string()))
            .or_else(|| differ("the size of blocks", self.block_bytes.to_string(), other.block_bytes.to_string()))
            .or_else(|| differ("the dataset's name", word(self.name.as_ref()), word(other.name.as_ref())))
            .or_else(|| (self != other).then(|| "the files or the units of the source are others".to_owned()))
    }

    /// Goes on with this plan, of what was begun in the folder, if `other`, of now, is the same.
    pub(super) fn go_on(self, to: &DatasetStore, other: Self) -> Result<Self, DatasetError> {
        let other = Self { totals: self.totals, ..other };
        let Some(difference) = self.difference(&other) else { return Ok(other) };
        let problem = format!(
            "holds a dataset of tokens that was begun otherwise: {difference}; give the source and the options with which it was begun, \
             another folder, or --force to go on with these, where what was done and still fits is kept"
        );
        Err(DatasetError::Parts { url: to.url().to_owned(), problem })
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data serialises")
    }

    pub(super) async fn write(&self, to: &DatasetStore) -> Result<(), DatasetError> {
        Ok(to.put(&path_of(PLAN), self.to_bytes().into()).await?)
    }

    /// Reads the plan of what was begun in the folder, if there is one.
    pub(super) async fn read(to: &DatasetStore) -> Result<Option<Self>, DatasetError> {
        let name = path_of(PLAN);
        let bytes = match to.read(&name, MAX_PLAN_BYTES).await {
            Ok(bytes) => bytes,
            Err(StoreError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let wrong = |problem: String| DatasetError::Parts { url: to.url_of(&name), problem };
        let plan: Self = serde_json::from_slice(&bytes).map_err(|error| {
            wrong(format!("is no plan that this version can read: {error}; begin anew with --force"))
        })?;
        if plan.version != VERSION {
            return Err(wrong(format!("has version {}, and this program reads {VERSION}", plan.version)));
        }
        Ok(Some(plan))
    }
}

fn path_of(name: &str) -> String {
    MetadataPlace::Hidden.path(&format!("{FOLDER}/{name}"))
}

/// Returns the name of the run of a unit.
pub(super) fn run_name(unit: u32) -> String {
    path_of(&format!("{RUN}{unit:06}"))
}

/// Returns the unit whose run has this name.
pub(super) fn unit_of(name: &str) -> Option<u32> {
    let number = in_metadata_folder(name)?.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_prefix(RUN)?;
    number.parse().ok().filter(|unit| run_name(*unit) == name)
}

/// Removes all runs.
pub(crate) async fn remove_runs(to: &DatasetStore) -> Result<(), DatasetError> {
    remove_work(to, FOLDER, |name| unit_of(name).is_some()).await
}

/// Removes the plan too.
pub(crate) async fn remove_plan_and_runs(to: &DatasetStore) -> Result<(), DatasetError> {
    remove_work(to, FOLDER, |name| name == path_of(PLAN) || unit_of(name).is_some()).await
}

/// Removes what a killed process left of unfinished runs of these units.
pub(super) fn remove_unfinished_runs(to: &DatasetStore, is_own: impl Fn(u32) -> bool) -> Result<(), DatasetError> {
    let folder = format!("{METADATA_FOLDER}/{FOLDER}");
    let is_left = |name: &str| unit_of(&path_of(name)).is_some_and(&is_own);
    Ok(to.remove_temporaries(&folder, is_left)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_are_known_again() {
        assert_eq!(run_name(12), ".spdl/tokens/run-000012");
        assert_eq!(unit_of(&run_name(1_234_567)), Some(1_234_567));
        for name in
            [".spdl/tokens/run-12", ".spdl/tokens/run-", "run-000012", ".spdl/tokens/runs.json", ".spdl/run-000012"]
        {
            assert_eq!(unit_of(name), None, "{name}");
        }
    }
}
