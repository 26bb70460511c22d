//! Writes a dataset from records that a program makes, as they come.

use std::sync::Arc;

use futures::stream;
use spdl_pipeline::{Op, Pipeline, PipelinePlan};
use spdl_shard::{
    manifest::{DEFAULT_BLOCK_BYTES, check_names},
    store::DatasetStore,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    DEFAULT_SHARD_BYTES, DatasetError, DatasetProgress, DatasetReport, Jpegs, Overwrite,
    members::{JpegRewriter, Members},
    pack::{GROUPS_READY, MEMBERS, Packing, ShardOptions},
    record::{GROUP_BYTES, RecordGroup, members_of},
    replace::Replacement,
    source::LABEL_FIELD,
    stages::{Memory, MemoryBound, cpu_threads},
};
use crate::tar::KeyEnd;

/// Number of groups of records that wait to be packed.
const GROUPS_WAITING: usize = 2;
/// Size of the longest field, in bytes: 1 GiB.
const MAX_FIELD_BYTES: usize = 1 << 30;
/// Length of the longest key and of the longest name of a field, in bytes.
const MAX_NAME_BYTES: usize = 4096;

/// The fields that can have a sample's label.
const LABEL_FIELDS: [&str; 2] = [LABEL_FIELD, "label"];

/// How records that a program makes are written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// The names of the classes, in the order of their numbers. Default: none. If there are some, a whole number in the
    /// field `cls` or `label` has to be that of a class.
    pub classes: Vec<String>,
    /// Size at which shards are closed, in bytes; as in [`PackOptions`](super::PackOptions). Default: 256 MiB.
    pub shard_bytes: u64,
    /// Number of records at which shards are closed. Default: no limit but the size.
    pub shard_records: Option<u32>,
    /// Size at which blocks are cut, in bytes; as in [`PackOptions`](super::PackOptions). Default: 8 MiB.
    pub block_bytes: u64,
    /// Whether JPEGs are rewritten, without loss, so that crops are read fast. Default: they stay as they are.
    pub jpegs: Jpegs,
    /// What happens if something exists where the dataset should go. Default: refuse.
    pub overwrite: Overwrite,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            name: None,
            classes: Vec::new(),
            shard_bytes: DEFAULT_SHARD_BYTES,
            shard_records: None,
            block_bytes: DEFAULT_BLOCK_BYTES,
            jpegs: Jpegs::AsTheyAre,
            overwrite: Overwrite::Refuse,
        }
    }
}

impl WriteOptions {
    fn shards(&self) -> ShardOptions<'_> {
        ShardOptions {
            name: self.name.as_deref(),
            boxes: None,
            shard_bytes: self.shard_bytes,
            shard_records: self.shard_records,
            block_bytes: self.block_bytes,
            has_distinct_keys: true,
        }
    }
}

/// A record that a program makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Its key, which differs from those of all other records.
    pub key: String,
    /// Its fields, at least one: their names and contents.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl NewRecord {
    /// Returns what is wrong with the label, if anything is, where there are `classes` classes.
    fn label_problem(&self, classes: usize) -> Option<String> {
        let labels = self.fields.iter().filter(|(name, _)| LABEL_FIELDS.contains(&name.as_str()));
        let mut numbers = labels.filter_map(|(name, content)| Some((name, whole_number(content)?)));
        let is_class = |number: &str| number.parse::<usize>().is_ok_and(|number| number < classes);
        let (name, number) = numbers.find(|(_, number)| classes > 0 && !is_class(number))?;
        let classes = if classes == 1 {
            "the one class has the number 0".to_owned()
        } else {
            format!("the {classes} classes have the numbers 0 to {}", classes - 1)
        };
        Some(format!(
            "has the number {number} in the field `{name}`, which is not that of a class: {classes}; a field of another name \
             may have other numbers"
        ))
    }

    /// Returns what is wrong with the key or the fields, if anything is.
    fn problem(&self) -> Option<String> {
        let Self { key, fields } = self;
        let is_long = |text: &str| text.len() > MAX_NAME_BYTES;
        let parts = || key.split('/');
        if key.is_empty() {
            return Some("has an empty key".to_owned());
        }
        if is_long(key) || key.chars().any(char::is_control) {
            return Some(format!("has a key with more than {MAX_NAME_BYTES} bytes, or with a control character"));
        }
        if parts().any(|part| matches!(part, "" | "." | "..")) || key.starts_with("__") {
            return Some(
                "has a key that is no path in a tar: no part may be empty, `.` or `..`, or begin with `__`".into(),
            );
        }
        if parts().next_back().is_some_and(|file| file.contains('.')) {
            return Some("has a dot in its key, where readers would end it; write `_`, for example".to_owned());
        }
        if fields.is_empty() {
            return Some("has no fields".to_owned());
        }
        for (nth, (name, content)) in fields.iter().enumerate() {
            let is_name = |name: &str| !name.chars().any(|c| c == '/' || c.is_control() || c.is_uppercase());
            if is_long(name) || !is_name(name) || KeyEnd::FirstDot.split(&format!("{key}.{name}")) != Some((key, name))
            {
                let rule =
                    "a name has no capitals, slashes or control characters, and does not begin or end with a dot";
                return Some(format!("has the field `{}`: {rule}", name.escape_debug()));
            }
            if name.starts_with('.') || name.ends_with('.') {
                return Some(format!("has the field `{name}`: a name does not begin or end with a dot"));
            }
            if fields[..nth].iter().any(|(other, _)| other == name) {
                return Some(format!("has the field `{name}` twice"));
            }
            if content.len() > MAX_FIELD_BYTES {
                return Some(format!(
                    "has {} bytes in the field `{name}`; at most {MAX_FIELD_BYTES} fit",
                    content.len()
                ));
            }
        }
        None
    }

    fn bytes(&self) -> u64 {
        self.fields.iter().map(|(_, content)| content.len() as u64).sum()
    }
}

/// Writes a dataset from records that come one by one, with the shards, indexes and manifest of [`pack`](super::pack()),
/// in the order of the calls. The manifest is written by [`finish`](Self::finish): until then there is no dataset.
///
/// Call [`add`](Self::add) and then [`flush`](Self::flush) for each record, and [`finish`](Self::finish) or
/// [`abort`](Self::abort) at the end, all of them in one runtime.
#[derive(Debug)]
pub struct DatasetWriter {
    url: String,
    /// Number of classes.
    classes: usize,
    records: Option<mpsc::Sender<WriterMessage>>,
    /// Stops the packing when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    /// `None` when it has ended.
    packing: Option<JoinHandle<Result<DatasetReport, DatasetError>>>,
    group: Vec<NewRecord>,
    group_bytes: u64,
    count: u64,
    last_key: Option<String>,
}

#[derive(Debug)]
enum WriterMessage {
    Group(Vec<NewRecord>),
    End,
}

impl DatasetWriter {
    /// Begins a dataset in the folder `to`. Calls `on_progress` while records are packed.
    ///
    /// # Errors
    /// If an option is invalid, the folder holds a dataset or what is left of one, or the store cannot be written.
    pub async fn begin(
        to: DatasetStore,
        options: WriteOptions,
        on_progress: impl Fn(DatasetProgress) + Send + Sync + 'static,
    ) -> Result<Self, DatasetError> {
        options.shards().check()?;
        let url = to.url().to_owned();
        check_names(&options.classes).map_err(|source| DatasetError::Unwritable { url: url.clone(), source })?;
        let replacement = Replacement::begin(&to, options.overwrite).await?;
        let (records, receiver) = mpsc::channel(GROUPS_WAITING);
        let (stop, stopped) = oneshot::channel::<()>();
        let stages = stages(receiver, options.jpegs, url.clone());
        let classes = options.classes.len();
        let packing = tokio::spawn(async move {
            let packing = Packing::new(&to, options.shards(), &replacement, None, &on_progress);
            let stop = async { drop(stopped.await) };
            packing.run(Ok(stages), options.classes.clone(), stop).await
        });
        let (records, stop, packing) = (Some(records), Some(stop), Some(packing));
        Ok(Self { url, classes, records, stop, packing, group: Vec::new(), group_bytes: 0, count: 0, last_key: None })
    }

    /// Returns the number of records that were added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Adds a record. Nothing is added if there is an error.
    ///
    /// # Errors
    /// [`DatasetError::Record`] if its key or the name of a field cannot be written, or its label is not a class's number.
    pub fn add(&mut self, record: NewRecord) -> Result<(), DatasetError> {
        let is_same = self.last_key.as_ref() == Some(&record.key);
        let problem = record
            .problem()
            .or_else(|| record.label_problem(self.classes))
            .or_else(|| is_same.then(|| "has the key of the sample before".to_owned()));
        if let Some(problem) = problem {
            return Err(DatasetError::Record {
                number: self.count,
                key: record.key.escape_debug().to_string(),
                problem,
            });
        }
        self.count += 1;
        self.last_key = Some(record.key.clone());
        self.group_bytes += record.bytes();
        self.group.push(record);
        Ok(())
    }

    /// Hands the records on, if they are enough for a step of the work. It may be cancelled, and called again.
    ///
    /// # Errors
    /// If the work has failed; nothing of it is left then.
    pub async fn flush(&mut self) -> Result<(), DatasetError> {
        if self.group_bytes < GROUP_BYTES {
            return Ok(());
        }
        self.send(false).await
    }

    /// Writes what is left, and the manifest. It may be cancelled, and called again.
    ///
    /// # Errors
    /// If the work has failed, or there is no record. Nothing is left then, unless the manifest may have been written.
    pub async fn finish(&mut self) -> Result<DatasetReport, DatasetError> {
        if self.count == 0 {
            self.abort().await;
            let problem = "no sample was written".to_owned();
            return Err(DatasetError::Nothing { origin: self.url.clone(), problem });
        }
        if self.records.is_some() {
            if !self.group.is_empty() {
                self.send(false).await?;
            }
            self.send(true).await?;
            self.records = None;
        }
        self.ended().await
    }

    /// Removes what was written. Does nothing after the end.
    pub async fn abort(&mut self) {
        self.stop = None;
        // The error is that it was stopped.
        let _ = self.ended().await;
        self.records = None;
    }

    /// Hands on the records, or their end.
    async fn send(&mut self, is_end: bool) -> Result<(), DatasetError> {
        let Some(records) = &self.records else { return Err(self.stopped()) };
        let Some(packing) = &mut self.packing else { return Err(self.stopped()) };
        tokio::select! {
            biased;
            ended = packing => {
                self.packing = None;
                Err(result_of(ended).err().unwrap_or_else(|| self.stopped()))
            }
            Ok(permit) = records.reserve() => {
                permit.send(if is_end {
                    WriterMessage::End
                } else {
                    WriterMessage::Group(std::mem::take(&mut self.group))
                });
                self.group_bytes = 0;
                Ok(())
            }
        }
    }

    /// Waits for the end of the work.
    async fn ended(&mut self) -> Result<DatasetReport, DatasetError> {
        let Some(packing) = &mut self.packing else { return Err(self.stopped()) };
        let ended = packing.await;
        self.packing = None;
        result_of(ended)
    }

    fn stopped(&self) -> DatasetError {
        DatasetError::Stopped { url: self.url.clone() }
    }
}

/// Returns the text of a field if it is a whole number, which may have more digits than an integer.
fn whole_number(content: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content).ok()?.trim_ascii();
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

fn result_of<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    ended.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

/// Returns the stages that make the members of records. They fail if the channel closes before the message that ends
/// the records.
fn stages(receiver: mpsc::Receiver<WriterMessage>, jpegs: Jpegs, url: String) -> PipelinePlan<RecordGroup<Members>> {
    let groups = stream::unfold((receiver, url), |(mut receiver, url)| async move {
        let group = match receiver.recv().await {
            Some(WriterMessage::Group(group)) => Ok(group),
            Some(WriterMessage::End) => return None,
            None => Err(DatasetError::Stopped { url: url.clone() }),
        };
        Some((group, (receiver, url)))
    });
    let bound = MemoryBound::new();
    let jpegs = JpegRewriter::new(jpegs);
    let copies = jpegs.copies();
    let admit = move |group: Result<Vec<NewRecord>, DatasetError>| {
        let bound = bound.clone();
        async move {
            let group = group?;
            let memory = Arc::new(bound.take(group.iter().map(NewRecord::bytes).sum::<u64>() * copies).await);
            Ok::<_, DatasetError>((group, memory))
        }
    };
    let members = move |(group, memory): (Vec<NewRecord>, Arc<Memory>)| {
        let made =
            group.into_iter().map(|NewRecord { key, fields }| members_of(key, fields, &jpegs, &memory)).collect();
        Ok::<_, DatasetError>(RecordGroup::of(made, memory))
    };
    Pipeline::builder()
        .source_stream(groups)
        .pipe("memory", Op::asynchronous(admit), 1)
        .pipe(MEMBERS, Op::cpu(members).count_bytes(RecordGroup::bytes), cpu_threads())
        .sink(GROUPS_READY)
}
