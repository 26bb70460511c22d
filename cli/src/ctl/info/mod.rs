//! `spdl-ctl info`: shows what a dataset has, and what a job could read of it.

mod sheet;

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode};

use serde::Serialize;
use spdl_dataset::{DatasetError, split_of};
use spdl_shard::manifest::TokenizerFacts;
use spdl_types::Fingerprint;

use super::{CtlError, CtlResult, look::LookArgs, output::outln, report};
use crate::suggest::{FieldFacts, JobPurpose, SIZE, SeenDataset, SuggestionOptions};

/// The most characters in a line.
const WIDTH: usize = 80;
/// The most classes that are shown.
const CLASSES: usize = 100;

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    /// Folders or URLs of datasets.
    #[arg(required = true)]
    dataset: Vec<String>,
    #[command(flatten)]
    look: LookArgs,
    /// Writes a PNG with the first pictures of a shuffled epoch, with their labels and boxes.
    #[arg(long, value_name = "PNG")]
    sheet: Option<PathBuf>,
    /// Prints the report as one line of JSON, a line for each dataset.
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct InfoReport {
    url: String,
    name: String,
    fingerprint: Fingerprint,
    format: &'static str,
    shards: u32,
    blocks: u32,
    records: u64,
    samples: u64,
    bytes: u64,
    /// The tokenizer that its tokens are of, if the manifest has it.
    tokenizer: Option<TokenizerReport>,
    /// The records that were looked at.
    looked_at: u64,
    fields: Vec<FieldReport>,
    /// The classes in the order of their numbers, each with how many of these records are of it.
    classes: Vec<ClassReport>,
    /// The samples of each split, where the names of shards say which they are of.
    splits: BTreeMap<String, u64>,
    first_keys: Vec<String>,
    /// A job file that reads the fields.
    job: String,
}

#[derive(Debug, Serialize)]
struct TokenizerReport {
    fingerprint: Fingerprint,
    vocab: u32,
    eos: Option<u32>,
    /// Whether each document ends with that id.
    ends_with_eos: bool,
}

#[derive(Debug, Serialize)]
struct FieldReport {
    name: String,
    /// How many of the records have it.
    records: u64,
    /// What the values are, each with how many.
    kinds: BTreeMap<String, u64>,
    min_bytes: Option<u64>,
    median_bytes: Option<u64>,
    max_bytes: Option<u64>,
    /// Width and height of pictures, the shapes of arrays, the sample rate, channels and frames of sounds, or width, height and frames
    /// of videos: the shortest and the longest sides.
    sides: Option<[Vec<u64>; 2]>,
    problem: Option<String>,
    #[serde(skip)]
    are_pictures: bool,
    #[serde(skip)]
    are_sounds: bool,
    #[serde(skip)]
    are_videos: bool,
}

#[derive(Debug, Serialize)]
struct ClassReport {
    name: String,
    /// `None` if the records have no label that is one class.
    records: Option<u64>,
}

/// Runs `info`.
pub(crate) fn run(args: &InfoArgs) -> CtlResult {
    if args.sheet.is_some() && args.dataset.len() > 1 {
        let problem = "is for one dataset".to_owned();
        return Err(DatasetError::Option { option: "sheet", problem }.into());
    }
    for (number, dataset) in args.dataset.iter().enumerate() {
        if number > 0 && !args.json {
            outln!()?;
        }
        show(dataset, args)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one dataset.
fn show(dataset: &str, args: &InfoArgs) -> Result<(), CtlError> {
    let (seen, sheet) = super::runtime()?.block_on(async {
        let seen = SeenDataset::look(dataset, args.look.which()).await?;
        let sheet = match &args.sheet {
            Some(_) => Some(sheet::png(&seen).await?),
            None => None,
        };
        Ok::<_, CtlError>((seen, sheet))
    })?;
    if let Some((path, png)) = args.sheet.as_ref().zip(sheet) {
        fs::write(path, png).map_err(|source| CtlError::WriteFile { path: path.clone(), source })?;
    }
    let found = InfoReport::new(&seen);
    if args.json { report::json(&found) } else { found.print() }
}

impl InfoReport {
    fn new(seen: &SeenDataset) -> Self {
        let (manifest, facts, url) = (seen.manifest(), seen.facts(), seen.url().to_owned());
        let mut splits = BTreeMap::new();
        for shard in manifest.shards() {
            if let Some(split) = split_of(shard.url) {
                *splits.entry(split.into_owned()).or_default() += u64::from(shard.samples);
            }
        }
        let of_class = |(name, number): (&str, u32)| {
            let records = (!facts.classes.is_empty()).then(|| facts.classes.get(&number).copied().unwrap_or(0));
            ClassReport { name: name.to_owned(), records }
        };
        let (purpose, name) = (JobPurpose::Training, "train".to_owned());
        let options = SuggestionOptions { purpose, name, dataset: url.clone(), size: SIZE, batch: None };
        Self {
            job: seen.job(&options, None).text,
            url,
            name: manifest.name().to_owned(),
            fingerprint: manifest.fingerprint(),
            format: manifest.format().name(),
            shards: manifest.shard_count(),
            blocks: manifest.block_count(),
            records: manifest.records(),
            samples: manifest.samples(),
            bytes: manifest.shards().map(|shard| shard.bytes).sum(),
            tokenizer: manifest.tokenizer().map(TokenizerReport::of),
            looked_at: facts.records,
            classes: manifest.classes().zip(0..).map(of_class).collect(),
            fields: facts.fields.iter().map(FieldReport::new).collect(),
            splits,
            first_keys: facts.first_keys.clone(),
        }
    }

    fn print(&self) -> Result<(), CtlError> {
        outln!("dataset `{}`, {}", self.name, self.format)?;
        outln!("{}", self.url)?;
        outln!(
            "{}, {}, {}, {}",
            report::count(self.samples, "sample", "samples"),
            report::count(self.records, "record", "records"),
            report::count(self.shards.into(), "shard", "shards"),
            report::bytes(self.bytes),
        )?;
        outln!("fingerprint {}", self.fingerprint)?;
        self.tokenizer.iter().try_for_each(TokenizerReport::print)?;
        let looked_at = report::grouped(self.looked_at);
        if self.looked_at < self.records {
            outln!("\nfields of {looked_at} records, spread over the dataset (--all looks at all):")?;
        } else {
            outln!("\nfields of all {looked_at} records:")?;
        }
        outln!("  {:<14}  {:>9}  {:<24} {:>8} {:>8} {:>8}", "field", "records", "kind", "min", "median", "max")?;
        for field in &self.fields {
            field.print()?;
        }
        if !self.classes.is_empty() {
            let what = match (&self.classes[0].records, self.looked_at < self.records) {
                (None, _) => "",
                (Some(_), true) => ", and how many of those records are of it",
                (Some(_), false) => ", and how many records are of it",
            };
            outln!("\n{}, each with its number{what}:", report::count(self.classes.len() as u64, "class", "classes"))?;
            items(self.classes.iter().zip(0..).take(CLASSES).map(|(class, number)| match class.records {
                Some(records) => format!("{number} {} ({})", class.name, report::grouped(records)),
                None => format!("{number} {}", class.name),
            }))?;
            if self.classes.len() > CLASSES {
                outln!("  and {} more (--json has all)", self.classes.len() - CLASSES)?;
            }
        }
        if !self.splits.is_empty() {
            outln!("\nsplits, by the names of the shards:")?;
            items(
                self.splits
                    .iter()
                    .map(|(split, samples)| format!("{split} ({})", report::count(*samples, "sample", "samples"))),
            )?;
        }
        outln!("\nfirst keys:")?;
        items(self.first_keys.iter().cloned())?;
        outln!("\na job that reads the fields:\n")?;
        self.job.lines().try_for_each(|line| outln!("{line}"))
    }
}

impl TokenizerReport {
    const fn of(TokenizerFacts { fingerprint, vocab, eos, ends_with_eos }: TokenizerFacts) -> Self {
        Self { fingerprint, vocab, eos, ends_with_eos }
    }

    fn print(&self) -> Result<(), CtlError> {
        let end = match (self.eos, self.ends_with_eos) {
            (Some(eos), true) => format!(", each document ends with id {eos}"),
            (Some(eos), false) => format!(", eos {eos}, which documents do not end with"),
            (None, _) => String::new(),
        };
        outln!("tokenizer {}: {} ids{end}", self.fingerprint, report::grouped(self.vocab.into()))
    }
}

impl FieldReport {
    fn new((name, facts): (&String, &FieldFacts)) -> Self {
        let sizes = facts.sizes();
        Self {
            name: name.clone(),
            records: facts.records,
            kinds: facts.kinds.iter().map(|(kind, records)| (kind.text(), *records)).collect(),
            min_bytes: sizes.map(|[least, ..]| least),
            median_bytes: sizes.map(|[_, median, _]| median),
            max_bytes: sizes.map(|[.., largest]| largest),
            sides: facts.sides().cloned(),
            are_pictures: facts.is_picture(),
            are_sounds: facts.is_sound(),
            are_videos: facts.is_video(),
            problem: facts.problem.clone(),
        }
    }

    /// Formats sides: `640x480` of a picture, `16000 Hz x1 2.50 s` of a sound, `640x480 x250` of a video, `[2, 3]` of an array.
    fn sides(&self, sides: &[u64]) -> String {
        if let (true, &[rate, channels, frames]) = (self.are_sounds, sides) {
            return format!("{rate} Hz x{channels} {:.2} s", frames as f64 / rate.max(1) as f64);
        }
        if let (true, &[width, height, frames]) = (self.are_videos, sides) {
            return format!("{width}x{height} x{frames}");
        }
        if !self.are_pictures {
            return format!("{sides:?}");
        }
        sides.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
    }

    fn print(&self) -> Result<(), CtlError> {
        let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), report::bytes);
        let mut kind = self.kinds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut sides = self.sides.as_ref().map_or(String::new(), |[shortest, longest]| match shortest == longest {
            true => self.sides(shortest),
            false => format!("{} to {}", self.sides(shortest), self.sides(longest)),
        });
        if kind.chars().count() + 1 + sides.chars().count() <= 24 {
            kind = format!("{kind} {}", std::mem::take(&mut sides));
        }
        // What does not fit has a line of its own.
        let (name, records) = (&self.name, report::grouped(self.records));
        let sizes = [self.min_bytes, self.median_bytes, self.max_bytes].map(size);
        let is_short = name.chars().count() <= 14 && kind.chars().count() <= 24;
        let cells = if is_short { [name.as_str(), kind.trim_end()] } else { ["", ""] };
        if !is_short {
            outln!("  {name}: {}", kind.trim_end())?;
        }
        outln!("  {:<14}  {records:>9}  {:<24} {:>8} {:>8} {:>8}", cells[0], cells[1], sizes[0], sizes[1], sizes[2])?;
        if !sides.is_empty() {
            outln!("{:29}{sides}", "")?;
        }
        match &self.problem {
            Some(problem) => outln!("{:4}{problem}", ""),
            None => Ok(()),
        }
    }
}

/// Prints items with commas between them, in lines of at most [`WIDTH`] characters where items allow it.
fn items(items: impl Iterator<Item = String>) -> Result<(), CtlError> {
    let mut line = String::new();
    let mut items = items.peekable();
    while let Some(mut item) = items.next() {
        if items.peek().is_some() {
            item.push(',');
        }
        if !line.is_empty() && 2 + line.chars().count() + 1 + item.chars().count() > WIDTH {
            outln!("  {line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&item);
    }
    if line.is_empty() { Ok(()) } else { outln!("  {line}") }
}
