//! Indexes Megatron's pairs of `NAME.bin` and `NAME.idx`. Of each pair the `.idx` is read, in pieces, so that a file of any length
//! takes little memory, and no token.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures::{
    StreamExt, TryStreamExt,
    future::try_join3,
    stream::{self, BoxStream},
};
use spdl_shard::format::{
    Format, StoredObject,
    megatron::{BIN_SUFFIX, IDX_SUFFIX, IdxDocuments, IdxHeader, IdxReader, IdxSequences, IdxWants, Megatron},
    token_index::TokenRun,
};
use spdl_store::{StoreError, blocking};

use super::{
    FormatScan,
    token_shards::{PIECES_AHEAD, PlacesFile, TokenFile, TokenLoss, TokenRunReader, TokenScan, object, pieces},
};
use crate::{DatasetError, Listing, Scan, ShardResult, hidden::is_hidden_shard};

/// Finds Megatron's files.
#[derive(Debug)]
pub(super) struct MegatronScan;

impl FormatScan for MegatronScan {
    fn format(&self) -> &'static dyn Format {
        &Megatron
    }

    fn is_shard(&self, name: &str) -> bool {
        name.ends_with(BIN_SUFFIX) || name.ends_with(IDX_SUFFIX)
    }

    fn is_beside_shard(&self, name: &str) -> bool {
        name.ends_with(IDX_SUFFIX)
    }

    fn recognises(&self, folder: &Listing) -> bool {
        let stems = |suffix: &'static str| {
            let names = folder.iter().map(|object| object.name).filter(|name| !is_hidden_shard(name));
            names.filter_map(move |name| name.strip_suffix(suffix))
        };
        let of_bins: HashSet<&str> = stems(BIN_SUFFIX).collect();
        // Files of these names alone are taken for pairs of which one is missing.
        let has_others = || folder.iter().any(|object| !self.is_shard(object.name));
        stems(IDX_SUFFIX).any(|stem| of_bins.contains(stem)) || !folder.is_empty() && !has_others()
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["idx"], "`spdl-ctl index` makes a dataset of Megatron's `.bin` and `.idx` files, as they are")
    }

    fn scan<'s>(&self, mut scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let pairs = pairs(&std::mem::take(&mut scan.folder));
        scan.meter.expect_bytes(pairs.iter().filter_map(|pair| pair.idx.as_ref()).map(|idx| idx.bytes).sum());
        let (scanner, meter, at_once) = (TokenScan::of(&scan), scan.meter, scan.options.shards_at_once.max(1));
        let shards = stream::iter(pairs).map(move |pair| {
            let scanner = scanner.clone();
            let (opening, bin) = (scanner.clone(), format!("{}{BIN_SUFFIX}", pair.stem));
            scanner.shards(bin, async move { open(&opening, pair).await })
        });
        shards.buffered(at_once).flatten().inspect_ok(move |_| meter.report()).boxed()
    }
}

/// A `.bin` and its `.idx`, as far as they are listed.
#[derive(Debug, Default)]
struct MegatronPair {
    /// Their path without suffix.
    stem: String,
    bin: Option<StoredObject>,
    idx: Option<StoredObject>,
}

/// Returns the pairs in a folder, in the order in which their first file is listed.
fn pairs(folder: &Listing) -> Vec<MegatronPair> {
    let mut pairs: Vec<MegatronPair> = Vec::new();
    let mut by_stem: BTreeMap<&str, usize> = BTreeMap::new();
    for listed in folder.iter() {
        let of_idx = listed.name.strip_suffix(IDX_SUFFIX);
        // Of a file of another name that the user chose, the `.idx` is missing.
        let stem = of_idx.or_else(|| listed.name.strip_suffix(BIN_SUFFIX)).unwrap_or(listed.name);
        let number = *by_stem.entry(stem).or_insert_with(|| {
            pairs.push(MegatronPair { stem: stem.to_owned(), ..MegatronPair::default() });
            pairs.len() - 1
        });
        let pair = &mut pairs[number];
        *(if of_idx.is_some() { &mut pair.idx } else { &mut pair.bin }) = Some(object(&listed));
    }
    pairs
}

/// Opens a pair.
async fn open(scan: &TokenScan, pair: MegatronPair) -> Result<(TokenFile, IdxRuns), DatasetError> {
    let MegatronPair { stem, bin, idx } = pair;
    let [bin_name, idx_name] = [BIN_SUFFIX, IDX_SUFFIX].map(|suffix| format!("{stem}{suffix}"));
    let (bin, idx) = match (bin, idx) {
        (None, Some(idx)) => (scan.beside(None, &idx, &bin_name, "").await?, idx),
        (bin, idx) => {
            let bin = bin.expect("a pair has a file");
            let idx = scan.beside(idx, &bin, &idx_name, "; tokens alone take `--end-token`").await?;
            (bin, idx)
        }
    };
    let idx = PlacesFile::open(scan, idx).await?;
    let idx_bytes = idx.object.bytes;
    let header = idx.read(0..IdxHeader::BYTES.min(idx_bytes)).await?;
    let header = IdxHeader::read(&header, idx_bytes).map_err(|problem| idx.wrong(problem))?;
    let runs = IdxRuns::new(Arc::new(idx), header, &bin);
    let file = TokenFile {
        object: bin,
        dtype: header.dtype,
        prefix: format!("{stem}/"),
        loss: TokenLoss::None,
        read_bytes: idx_bytes,
    };
    Ok((file, runs))
}

/// The documents of an `.idx` that is read in pieces.
struct IdxRuns {
    idx: Arc<PlacesFile>,
    bin: String,
    sequences: BoxStream<'static, Result<IdxSequences, StoreError>>,
    documents: BoxStream<'static, Result<IdxDocuments, StoreError>>,
    /// What was read of the two, and is used up by and by.
    at_hand: (IdxSequences, IdxDocuments),
    /// `None` when all is read.
    reader: Option<IdxReader>,
    /// What is wrong after the runs that were returned last.
    problem: Option<String>,
    /// Number of bytes of the `.bin` behind the last document.
    rest: u64,
}

impl IdxRuns {
    fn new(idx: Arc<PlacesFile>, header: IdxHeader, bin: &StoredObject) -> Self {
        let file = Arc::clone(&idx);
        let sequences = pieces(header.sequences).map(move |some| {
            let file = Arc::clone(&file);
            async move {
                let ranges = (header.lengths(&some), header.pointers(&some), header.modes(&some));
                let read = try_join3(file.read(ranges.0), file.read(ranges.1), file.read(ranges.2)).await;
                read.map(|(lengths, pointers, modes)| IdxSequences::new(lengths, pointers, modes))
            }
        });
        let file = Arc::clone(&idx);
        let documents = pieces(header.entries).map(move |some| {
            let file = Arc::clone(&file);
            async move { file.read(header.document_index(&some)).await.map(IdxDocuments::new) }
        });
        Self {
            idx,
            bin: bin.url.clone(),
            sequences: stream::iter(sequences).buffered(PIECES_AHEAD).boxed(),
            documents: stream::iter(documents).buffered(PIECES_AHEAD).boxed(),
            at_hand: Default::default(),
            reader: Some(IdxReader::new(header, bin.bytes)),
            problem: None,
            rest: 0,
        }
    }
}

impl TokenRunReader for IdxRuns {
    async fn next(&mut self) -> Result<Option<Vec<TokenRun>>, DatasetError> {
        if let Some(problem) = self.problem.take() {
            return Err(self.idx.wrong(problem));
        }
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        let (mut sequences, mut entries) = std::mem::take(&mut self.at_hand);
        let read = move || {
            let mut full = Vec::new();
            let wants = reader.read(&mut sequences, &mut entries, &mut full);
            (reader, (sequences, entries), full, wants)
        };
        let (reader, at_hand, mut full, wants) = blocking(read).await;
        self.at_hand = at_hand;
        let wants = match wants {
            Ok(wants) => wants,
            Err(problem) => {
                self.problem = Some(problem);
                return Ok(Some(full));
            }
        };
        let is_there = match wants {
            IdxWants::Sequences => self.sequences.try_next().await?.map(|next| self.at_hand.0 = next).is_some(),
            IdxWants::Documents => self.documents.try_next().await?.map(|next| self.at_hand.1 = next).is_some(),
        };
        if is_there {
            self.reader = Some(reader);
        } else {
            let (last, rest) = reader.finish().map_err(|problem| self.idx.wrong(problem))?;
            full.extend(last);
            self.rest = rest;
        }
        Ok(Some(full))
    }

    fn note(&self) -> Option<String> {
        let Self { bin, rest, .. } = self;
        (*rest > 0).then(|| format!("`{bin}` has {rest} bytes after its last document, which are not read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_pairs_by_their_stems() {
        let mut folder = Listing::default();
        for name in ["b.idx", "a/b.bin", "b.bin", "a/b.idx", "c.bin"] {
            folder.push(name, 1, None);
        }
        let found: Vec<_> =
            pairs(&folder).into_iter().map(|pair| (pair.stem, pair.bin.is_some(), pair.idx.is_some())).collect();
        assert_eq!(found, [("b".into(), true, true), ("a/b".into(), true, true), ("c".into(), true, false)]);
        assert!(MegatronScan.recognises(&folder));
        folder.retain(|object| object.name != "a/b.idx" && object.name != "b.idx");
        assert!(MegatronScan.recognises(&folder), "tokens alone lack their index, which the error says");
        folder.push("cat.jpg", 1, None);
        assert!(!MegatronScan.recognises(&folder));
    }
}
