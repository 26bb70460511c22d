//! Indexes files of tokens alone, as Dolma and OLMo have them: all tokens are read once to find the end tokens.

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::{
    format::{
        Format, ObjectRange, StoredObject,
        token_files::{EndToken, EndTokenReader, RawTokens},
        token_index::TokenRun,
    },
    store::DatasetStore,
};
use spdl_store::{StoreError, blocking};
use spdl_types::DType;

use crate::{
    DatasetError, IndexOptions, Listing, Scan, ShardResult,
    format::{
        FormatScan,
        token_shards::{TokenFile, TokenLoss, TokenRunReader, TokenScan, object},
    },
    hidden::is_hidden_shard,
};

/// The suffixes of such files, and the types that some of them state.
const SUFFIXES: [(&str, Option<DType>); 6] = [
    (".npy", None),
    (".bin", None),
    (".tokens", None),
    (".u8", Some(DType::U8)),
    (".u16", Some(DType::U16)),
    (".u32", Some(DType::U32)),
];

/// Number of chunks of a file, of 8 MiB, that are read before they are needed.
const CHUNKS_AHEAD: usize = 2;

/// Finds files of tokens alone.
#[derive(Debug)]
pub(in crate::format) struct RawTokensScan;

/// Returns the suffix of such a file.
fn suffix_of(name: &str) -> Option<(&'static str, Option<DType>)> {
    SUFFIXES.into_iter().find(|(suffix, _)| name.ends_with(suffix))
}

impl FormatScan for RawTokensScan {
    fn format(&self) -> &'static dyn Format {
        &RawTokens
    }

    fn is_shard(&self, name: &str) -> bool {
        suffix_of(name).is_some()
    }

    fn recognises(&self, folder: &Listing) -> bool {
        let states_type = |name: &str| suffix_of(name).is_some_and(|(_, dtype)| dtype.is_some());
        folder.iter().any(|object| states_type(object.name) && !is_hidden_shard(object.name))
    }

    fn takes_token_options(&self) -> bool {
        true
    }

    fn scan<'s>(&self, mut scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let folder = std::mem::take(&mut scan.folder);
        scan.meter.expect_bytes(folder.iter().map(|listed| listed.bytes).sum());
        let files: Result<Vec<(StoredObject, EndToken)>, DatasetError> =
            folder.iter().map(|listed| Ok((object(&listed), end_token(listed.name, scan.options)?))).collect();
        let files = match files {
            Ok(files) => files,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let (scanner, meter, at_once) = (TokenScan::of(&scan), scan.meter, scan.options.shards_at_once.max(1));
        let shards = stream::iter(files).map(move |(file, end)| {
            let (scanner, path) = (scanner.clone(), file.url.clone());
            let runs = RawRuns::new(&scanner, file.clone(), end);
            let stem = suffix_of(&path).map_or(&*path, |(suffix, _)| path.strip_suffix(suffix).expect("its suffix"));
            let (prefix, read_bytes) = (format!("{stem}/"), file.bytes);
            let file = TokenFile { object: file, dtype: end.dtype(), prefix, loss: TokenLoss::None, read_bytes };
            scanner.shards(path, std::future::ready(Ok((file, runs))))
        });
        shards.buffered(at_once).flatten().inspect_ok(move |_| meter.report()).boxed()
    }
}

/// Returns the end token of the file called `name`.
fn end_token(name: &str, options: &IndexOptions) -> Result<EndToken, DatasetError> {
    let missing = |option, what: &str| {
        let problem = format!("is not given, and `{name}` does not state {what}");
        DatasetError::Option { option, problem }
    };
    let dtype = options.dtype.or_else(|| suffix_of(name)?.1);
    let dtype =
        dtype.ok_or_else(|| missing("dtype", "the type of its tokens: give `u16` or `u32`, as it was written"))?;
    let token = options.end_token.ok_or_else(|| missing("end_token", "which token ends a document"))?;
    EndToken::new(dtype, token).map_err(|problem| DatasetError::Option { option: "end_token", problem })
}

/// The documents of a file that is read from end to end.
struct RawRuns {
    from: DatasetStore,
    object: StoredObject,
    chunks: BoxStream<'static, Result<bytes::Bytes, StoreError>>,
    /// `None` when all is read.
    reader: Option<EndTokenReader>,
    /// What is wrong after the runs that were returned last.
    problem: Option<String>,
    has_rest: bool,
}

impl RawRuns {
    fn new(scan: &TokenScan, object: StoredObject, end: EndToken) -> Self {
        let (from, file, counts) = (scan.from.clone(), object.clone(), scan.counts());
        let chunks = stream::iter(spdl_store::split(0..object.bytes)).map(move |range| {
            let (from, object, counts) = (from.clone(), file.clone(), counts.clone());
            async move {
                let bytes = from.read_range(&ObjectRange { object, at: range.start, range }).await?;
                counts.add(0, 0, bytes.len() as u64);
                Ok(bytes)
            }
        });
        Self {
            from: scan.from.clone(),
            object,
            chunks: chunks.buffered(CHUNKS_AHEAD).boxed(),
            reader: Some(EndTokenReader::new(end)),
            problem: None,
            has_rest: false,
        }
    }
}

impl TokenRunReader for RawRuns {
    async fn next(&mut self) -> Result<Option<Vec<TokenRun>>, DatasetError> {
        if let Some(problem) = self.problem.take() {
            return Err(DatasetError::Source { path: self.from.url_of(&self.object.url), problem });
        }
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        let mut full = Vec::new();
        let Some(chunk) = self.chunks.try_next().await? else {
            match reader.finish(&mut full) {
                Ok(has_rest) => self.has_rest = has_rest,
                Err(problem) => self.problem = Some(problem),
            }
            return Ok(Some(full));
        };
        let read = move || {
            let read = reader.read(&chunk, &mut full);
            (reader, full, read)
        };
        let (reader, full, read) = blocking(read).await;
        match read {
            Ok(()) => self.reader = Some(reader),
            Err(problem) => self.problem = Some(problem),
        }
        Ok(Some(full))
    }

    fn note(&self) -> Option<String> {
        let name = &self.object.url;
        self.has_rest
            .then(|| format!("`{name}` does not end with the end token: what follows the last one is a document"))
    }
}
