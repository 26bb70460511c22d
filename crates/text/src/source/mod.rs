//! Texts of files: JSON lines, columns of Parquet and plain text, in folders and stores, cut into units that are read independently
//! of each other.

mod columns;
mod fast;
mod file;
mod lines;
mod record;
mod rows;
mod units;
mod windows;

use std::{
    cell::OnceCell,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use spdl_dataset::{DatasetError, FileOfFolder, ShardList, files_of};
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, StoreOptions};
use spdl_types::Fingerprint;
use tokio::runtime::Handle;
use xxhash_rust::xxh3::Xxh3;

use file::{TextCompression, TextFile};
use units::FilePart;

/// Gets a text, or what is wrong with the record that should have it, and how to make an error about it of a problem; an error ends the
/// reading.
pub type EachText<'e> =
    dyn FnMut(Result<&str, String>, &dyn Fn(String) -> DatasetError) -> Result<(), DatasetError> + 'e;

/// How the documents of a plain text are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainText {
    /// A file is a document.
    #[default]
    Whole,
    /// Blank lines are between documents.
    BlankLines,
}

/// What of a record is its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordText {
    /// The first of these fields that it has.
    Fields(Vec<String>),
    /// All of it, as JSON. Plain text has no records.
    Whole,
}

/// How texts are read.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// What of a record is its text.
    pub from: RecordText,
    /// How plain text is divided.
    pub plain_text: PlainText,
    /// Size of the units that the source is cut into, in bytes. Default: 16 MiB, or one part in 4096 of the source. A lower value loses
    /// less when the work is interrupted, and makes more files meanwhile.
    pub unit_bytes: Option<u64>,
}

impl RecordText {
    /// Returns the fields; none if all of a record is its text.
    pub(crate) fn fields(&self) -> &[String] {
        match self {
            Self::Fields(fields) => fields,
            Self::Whole => &[],
        }
    }
}

impl Default for TextOptions {
    fn default() -> Self {
        let from = ["text", "content"].map(str::to_owned).to_vec();
        Self { from: RecordText::Fields(from), plain_text: PlainText::Whole, unit_bytes: None }
    }
}

/// What a file has, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    JsonLines,
    Parquet,
    Plain,
}

/// The texts of one or more files, folders and patterns.
#[derive(Debug)]
pub struct TextSource {
    files: Vec<(Arc<TextFile>, TextKind, TextCompression)>,
    units: Vec<Vec<FilePart>>,
    options: TextOptions,
    runtime: Handle,
    read_bytes: Arc<AtomicU64>,
}

impl TextSource {
    /// Lists the files of sources: paths and URLs of files and folders, and patterns such as `data/*.jsonl.zst`. Those of a folder are
    /// in the order of their names; hidden ones are passed over, and those below `except`, the folder that is written to. It has to be
    /// called on a runtime, which then reads from stores.
    ///
    /// # Errors
    /// If a source cannot be listed, has no file, or one of another kind than whole records are in.
    pub async fn open(sources: &[String], options: TextOptions, except: &DatasetStore) -> Result<Self, DatasetError> {
        if options.unit_bytes == Some(0) {
            return Err(DatasetError::Option { option: "unit-size", problem: "is 0; give at least 1".to_owned() });
        }
        let mut files = Vec::new();
        for source in sources {
            let before = files.len();
            for file in listed(source, except).await? {
                let (kind, compression) = kind_of(&file)?;
                if options.from == RecordText::Whole && kind == TextKind::Plain {
                    return Err(file.wrong(
                        "has no chats: they are read from JSON lines (`.jsonl`, `.json` or `.ndjson`, also with `.gz` or `.zst` behind it), \
                         one conversation a line, and from Parquet (`.parquet`), one a row",
                    ));
                }
                files.push((Arc::new(file), kind, compression));
            }
            if files.len() == before {
                let problem = "files with text were expected (JSON lines, Parquet, plain text), and there are none, or only hidden ones";
                return Err(DatasetError::Nothing { origin: source.clone(), problem: problem.to_owned() });
            }
        }
        let bytes = files.iter().map(|(file, ..)| file.bytes).sum();
        let sizes = files.iter().map(|(file, kind, compression)| {
            let can_be_cut = match kind {
                TextKind::JsonLines => *compression == TextCompression::None,
                TextKind::Parquet => true,
                TextKind::Plain => false,
            };
            (file.bytes, can_be_cut)
        });
        let units = units::units(sizes, options.unit_bytes.unwrap_or_else(|| units::unit_bytes(bytes)));
        Ok(Self { files, units, options, runtime: Handle::current(), read_bytes: Arc::default() })
    }

    /// Returns how texts are read.
    #[must_use]
    pub const fn options(&self) -> &TextOptions {
        &self.options
    }

    /// Returns the number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// Returns the number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the bytes of all files, as they are stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(file, ..)| file.bytes).sum()
    }

    /// Returns about how many bytes the texts of all files have.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        let of_file = |(file, kind, compression): &(Arc<TextFile>, _, _)| {
            let is_compressed = *kind == TextKind::Parquet || *compression != TextCompression::None;
            file.bytes * if is_compressed { 4 } else { 1 }
        };
        self.files.iter().map(of_file).sum()
    }

    /// Returns the bytes of a unit, as they are stored.
    ///
    /// # Panics
    /// If there is no such unit.
    #[must_use]
    pub fn unit_bytes(&self, unit: usize) -> u64 {
        self.units[unit].iter().map(|part| part.end - part.first).sum()
    }

    /// Returns the bytes that were read so far.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// Returns XXH3-128 of the names, within their sources, and sizes of the files of a unit, and of what of them belongs to it.
    ///
    /// # Panics
    /// If there is no such unit.
    #[must_use]
    pub fn unit_fingerprint(&self, unit: usize) -> Fingerprint {
        let mut hasher = Xxh3::new();
        for FilePart { file, first, end } in &self.units[unit] {
            let TextFile { name, bytes, .. } = &*self.files[*file].0;
            let numbers = [name.len() as u64, *bytes, *first, *end];
            hasher.update(&numbers.map(u64::to_le_bytes).concat());
            hasher.update(name.as_bytes());
        }
        Fingerprint(hasher.digest128())
    }

    /// Reads the texts of a unit, in order. Blocks the thread, which may not be one of the runtime's own.
    ///
    /// # Errors
    /// If a file cannot be read, has other content than its name tells, or changed; and the error of `each`.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn read(&self, unit: usize, each: &mut EachText<'_>) -> Result<(), DatasetError> {
        for part in &self.units[unit] {
            self.read_part(part, each)?;
        }
        Ok(())
    }

    /// Reads the first `count` texts of the source as [`read`](Self::read) does. Their bytes do not count as read.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn first(&self, count: NonZeroUsize, each: &mut EachText<'_>) -> Result<(), DatasetError> {
        let (mut left, before) = (count.get(), self.read_bytes());
        for unit in 0..self.units() {
            let read = self.read(unit, &mut |text, wrong| {
                each(text, wrong)?;
                left -= 1;
                // Only an error ends the reading.
                if left == 0 { Err(wrong(String::new())) } else { Ok(()) }
            });
            if left == 0 {
                break;
            }
            read?;
        }
        self.read_bytes.store(before, Relaxed);
        Ok(())
    }

    fn read_part(&self, part: &FilePart, each: &mut EachText<'_>) -> Result<(), DatasetError> {
        let (file, kind, compression) = &self.files[part.file];
        let (compression, range) = (*compression, (part.first, part.end));
        let open = |from: u64| file.open(&self.runtime, (from, part.end), &self.read_bytes);
        // Of a part with many bad records, the lines before it are counted once, and their bytes do not count as read.
        let counted = OnceCell::new();
        match kind {
            TextKind::JsonLines => {
                let before = || match (part.first, counted.get()) {
                    (0, _) => Ok(0),
                    (_, Some(before)) => Ok(*before),
                    (first, None) => {
                        let reader = file.open(&self.runtime, (0, first), &Arc::default())?;
                        let before = lines::lines_before(file, reader, first)?;
                        Ok(*counted.get_or_init(|| before))
                    }
                };
                let reader = open(part.first.saturating_sub(1))?;
                lines::json_lines(file, reader, compression, &self.options.from, range, &before, each)
            }
            TextKind::Parquet => columns::texts(file, open(part.first)?, &self.options.from, range, each),
            TextKind::Plain => match self.options.plain_text {
                PlainText::Whole => lines::whole(file, open(0)?, compression, each),
                PlainText::BlankLines => lines::paragraphs(file, open(0)?, compression, each),
            },
        }
    }
}

/// Lists the files of a source, except those below a folder.
async fn listed(source: &str, except: &DatasetStore) -> Result<Vec<TextFile>, DatasetError> {
    let (folder, shards) = ShardList::of_paths(&[source.to_owned()], None)?;
    let one = match &shards {
        ShardList::All => one_file(source).await?,
        ShardList::Named(_) => None,
    };
    let (store, files) = match one {
        Some((store, file)) => (store, vec![file]),
        None => {
            let store = DatasetStore::open_with(&folder, &StoreOptions::from_env())?.pinned().await?;
            if !store.can_list() && shards == ShardList::All {
                let problem = "is on a web server, which cannot list its files: give the URL of each file";
                return Err(DatasetError::Source { path: store.url().to_owned(), problem: problem.to_owned() });
            }
            let files = files_of(&store, &shards).await.map_err(|error| match error {
                DatasetError::Option { problem, .. } => DatasetError::Source { path: source.to_owned(), problem },
                error => error,
            })?;
            (store, files)
        }
    };
    let inside = inside(&store, except);
    let is_source = |name: &str| inside.as_ref().is_none_or(|inside| !name.starts_with(inside.as_str()));
    let files = files.into_iter().filter(|file| is_source(&file.name));
    Ok(files.map(|FileOfFolder { name, bytes }| TextFile { store: store.clone(), name, bytes }).collect())
}

/// Returns the file that a source is; `None` if it is a folder.
async fn one_file(source: &str) -> Result<Option<(DatasetStore, FileOfFolder)>, DatasetError> {
    let is_url = source.contains("://");
    if !is_url && !std::path::Path::new(source).is_file() {
        return Ok(None);
    }
    let (folder, name) = match source.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => (".", source),
    };
    // A folder in a bucket has mostly no suffix, and a bucket itself no folder.
    if name.is_empty() || folder.ends_with("/") && is_url || is_url && !name.contains('.') {
        return Ok(None);
    }
    let store = DatasetStore::open_with(folder, &StoreOptions::from_env())?.pinned().await?;
    match store.meta(name).await {
        Ok(meta) => Ok(Some((store, FileOfFolder { name: name.to_owned(), bytes: meta.size }))),
        Err(StoreError::Missing { .. }) if is_url && store.can_list() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns what the names of files begin with that lie in the folder `inner`, if that is below the folder `store`.
fn inside(store: &DatasetStore, inner: &DatasetStore) -> Option<String> {
    let relative = match (store.local_folder(), inner.local_folder()) {
        (Some(outer), Some(inner)) => {
            let [outer, inner] =
                [outer, inner].map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
            inner.strip_prefix(outer).ok()?.to_str()?.to_owned()
        }
        (None, None) => inner.url().strip_prefix(store.url())?.strip_prefix('/')?.to_owned(),
        _ => return None,
    };
    (!relative.is_empty()).then(|| format!("{relative}/"))
}

/// Returns what a file has, and how it is compressed.
fn kind_of(file: &TextFile) -> Result<(TextKind, TextCompression), DatasetError> {
    let name = file.name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if [".bz2", ".xz", ".zip", ".tar", ".tgz", ".7z"].iter().any(|suffix| name.ends_with(suffix)) {
        return Err(file.wrong("cannot be read: of compressed files, those of gzip (`.gz`) and Zstandard (`.zst`) are"));
    }
    let (stem, compression) = match name.rsplit_once('.') {
        Some((stem, "gz")) => (stem, TextCompression::Gzip),
        Some((stem, "zst" | "zstd")) => (stem, TextCompression::Zstd),
        _ => (name.as_str(), TextCompression::None),
    };
    let kind = match stem.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("jsonl" | "json" | "ndjson") => TextKind::JsonLines,
        Some("parquet") if compression != TextCompression::None => {
            return Err(file.wrong("is Parquet within another compression: decompress the file"));
        }
        Some("parquet") => TextKind::Parquet,
        _ => TextKind::Plain,
    };
    Ok((kind, compression))
}
