//! Indexes datatrove's `NAME.ds`: of each the `NAME.ds.index` is read, which states where documents end, and no token. A
//! `NAME.ds.loss` beside it is a field.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::format::{
    Format, StoredObject,
    token_files::{DS_INDEX_SUFFIX, DS_LOSS_SUFFIX, DS_SUFFIX, Datatrove, DsEnds, END_BYTES, ds_dtype},
    token_index::TokenRun,
};
use spdl_store::{StoreError, blocking};

use crate::{
    DatasetError, Listing, Scan, ShardResult,
    format::{
        FormatScan,
        token_shards::{PIECES_AHEAD, PlacesFile, TokenFile, TokenLoss, TokenRunReader, TokenScan, object, pieces},
    },
    hidden::is_hidden_shard,
};

/// Finds datatrove's files.
#[derive(Debug)]
pub(in crate::format) struct DatatroveScan;

impl FormatScan for DatatroveScan {
    fn format(&self) -> &'static dyn Format {
        &Datatrove
    }

    fn is_shard(&self, name: &str) -> bool {
        name.ends_with(DS_SUFFIX) || self.is_beside_shard(name)
    }

    fn is_beside_shard(&self, name: &str) -> bool {
        name.ends_with(DS_INDEX_SUFFIX) || name.ends_with(DS_LOSS_SUFFIX)
    }

    fn recognises(&self, folder: &Listing) -> bool {
        folder.iter().any(|object| object.name.ends_with(DS_INDEX_SUFFIX) && !is_hidden_shard(object.name))
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["ds"], "`spdl-ctl index` makes a dataset of datatrove's `.ds` and `.ds.index` files, as they are")
    }

    fn scan<'s>(&self, mut scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let files = files(&std::mem::take(&mut scan.folder));
        scan.meter.expect_bytes(files.iter().filter_map(|file| file.index.as_ref()).map(|index| index.bytes).sum());
        let (scanner, meter, at_once) = (TokenScan::of(&scan), scan.meter, scan.options.shards_at_once.max(1));
        let shards = stream::iter(files).map(move |file| {
            let scanner = scanner.clone();
            let (opening, path) = (scanner.clone(), format!("{}{DS_SUFFIX}", file.stem));
            scanner.shards(path, async move { open(&opening, file).await })
        });
        shards.buffered(at_once).flatten().inspect_ok(move |_| meter.report()).boxed()
    }
}

/// A `.ds` and the files beside it, as far as they are listed.
#[derive(Debug, Default)]
struct DsFile {
    /// Their path without suffix.
    stem: String,
    tokens: Option<StoredObject>,
    index: Option<StoredObject>,
    loss: Option<StoredObject>,
}

/// Returns the files of tokens in a folder, in the order in which the first file of each is listed.
fn files(folder: &Listing) -> Vec<DsFile> {
    let mut files: Vec<DsFile> = Vec::new();
    let mut by_stem: BTreeMap<&str, usize> = BTreeMap::new();
    for listed in folder.iter() {
        let [of_index, of_loss] = [DS_INDEX_SUFFIX, DS_LOSS_SUFFIX].map(|suffix| listed.name.strip_suffix(suffix));
        // Of a file of another name that the user chose, the `.ds.index` is missing.
        let of_tokens = listed.name.strip_suffix(DS_SUFFIX).unwrap_or(listed.name);
        let stem = of_index.or(of_loss).unwrap_or(of_tokens);
        let number = *by_stem.entry(stem).or_insert_with(|| {
            files.push(DsFile { stem: stem.to_owned(), ..DsFile::default() });
            files.len() - 1
        });
        let file = &mut files[number];
        let place = match (of_index, of_loss) {
            (Some(_), _) => &mut file.index,
            (None, Some(_)) => &mut file.loss,
            (None, None) => &mut file.tokens,
        };
        *place = Some(object(&listed));
    }
    files
}

/// Opens a file.
async fn open(scan: &TokenScan, file: DsFile) -> Result<(TokenFile, DsRuns), DatasetError> {
    let DsFile { stem, tokens, index, loss } = file;
    let [ds, ds_index] = [DS_SUFFIX, DS_INDEX_SUFFIX].map(|suffix| format!("{stem}{suffix}"));
    let listed = [&tokens, &index, &loss].into_iter().flatten().next().expect("a file that is listed").clone();
    let tokens = scan.beside(tokens, &listed, &ds, "").await?;
    let index = scan.beside(index, &listed, &ds_index, "").await?;
    let loss = match loss {
        None => scan.unlisted(&format!("{stem}{DS_LOSS_SUFFIX}")).await?,
        loss => loss,
    };
    let index = PlacesFile::open(scan, index).await?;
    let index_bytes = index.object.bytes;
    if !index_bytes.is_multiple_of(END_BYTES) {
        let problem = format!("has {index_bytes} bytes, and each end has {END_BYTES}: it is cut off, or another file");
        return Err(index.wrong(problem));
    }
    let last = index.read(index_bytes.saturating_sub(END_BYTES)..index_bytes).await?;
    let last = last.first_chunk().map_or(0, |last| u64::from_le_bytes(*last));
    let wrong =
        |file: &StoredObject, problem: String| DatasetError::Source { path: scan.from.url_of(&file.url), problem };
    let dtype = ds_dtype(tokens.bytes, last).map_err(|problem| wrong(&tokens, problem))?;
    if let Some(loss) = loss.as_ref().filter(|loss| loss.bytes != last) {
        let problem = format!("has {} bytes, one for each token, and `{ds}` has {last} tokens", loss.bytes);
        return Err(wrong(loss, problem));
    }
    let file = TokenFile {
        object: tokens,
        dtype,
        prefix: format!("{stem}/"),
        loss: if loss.is_some() { TokenLoss::Beside } else { TokenLoss::None },
        read_bytes: index_bytes,
    };
    let index = Arc::new(index);
    let reading = Arc::clone(&index);
    let ends = pieces(index_bytes / END_BYTES).map(move |some| {
        let file = Arc::clone(&reading);
        async move { file.read(END_BYTES * some.start..END_BYTES * some.end).await }
    });
    let pieces = stream::iter(ends).buffered(PIECES_AHEAD).boxed();
    Ok((file, DsRuns { index, pieces, reader: Some(DsEnds::new(dtype, last)), problem: None }))
}

/// The documents of a `.ds.index` that is read in pieces.
struct DsRuns {
    index: Arc<PlacesFile>,
    pieces: BoxStream<'static, Result<Bytes, StoreError>>,
    /// `None` when all is read.
    reader: Option<DsEnds>,
    /// What is wrong after the runs that were returned last.
    problem: Option<String>,
}

impl TokenRunReader for DsRuns {
    async fn next(&mut self) -> Result<Option<Vec<TokenRun>>, DatasetError> {
        if let Some(problem) = self.problem.take() {
            return Err(self.index.wrong(problem));
        }
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        let Some(piece) = self.pieces.try_next().await? else { return Ok(Some(reader.finish().into_iter().collect())) };
        let read = move || {
            let mut full = Vec::new();
            let read = reader.read(&piece, &mut full);
            (reader, full, read)
        };
        let (reader, full, read) = blocking(read).await;
        match read {
            Ok(()) => self.reader = Some(reader),
            Err(problem) => self.problem = Some(problem),
        }
        Ok(Some(full))
    }
}
