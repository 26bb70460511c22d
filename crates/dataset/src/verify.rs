//! Reads a dataset and compares every byte with its manifest and record indexes, and with the originals it was made
//! from.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde::Serialize;
use spdl_shard::store::DatasetStore;

use super::{
    Against, DatasetError, DatasetProgress, FieldChoice,
    check::{BatchCheck, DatasetCheck, MAX_FAULTS_PER_SHARD, PieceCheck},
    fields::READ,
    originals::{Compared, Originals},
    progress::progress_of,
    stages::RunningStages,
};

/// Upper limit of the faults that are listed for a dataset; more are only counted, for each shard.
const MAX_FAULTS: usize = 100_000;

/// How a dataset is verified.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// What the records are compared with: every picture must have the coefficients of its original. Default: nothing.
    pub against: Option<Against>,
    /// Which files of the originals became fields, if not all did. Default: all.
    pub fields: Option<FieldChoice>,
    /// The decoder that finds pictures which do not decode. Default: none; only the bytes of pictures are compared.
    pub decode: Option<PictureCheck>,
}

/// Decodes a picture from its bytes and returns what is wrong with it, as in `is cut off`.
#[derive(Clone)]
pub struct PictureCheck(Arc<dyn Fn(Bytes) -> Result<(), String> + Send + Sync>);

impl PictureCheck {
    /// Creates a check that calls `decode`, on threads that may block.
    pub fn new(decode: impl Fn(Bytes) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decode))
    }

    pub(super) fn check(&self, content: Bytes) -> Option<String> {
        (self.0)(content).err()
    }
}

impl std::fmt::Debug for PictureCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PictureCheck").finish_non_exhaustive()
    }
}

/// The report about a verified dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of shards that were read.
    pub shards: u64,
    /// Number of records that were read.
    pub records: u64,
    /// Number of fields that were read and compared with the index.
    pub fields: u64,
    /// Number of these that have no checksum, as loose files: their size was compared, and their etag where both have
    /// one.
    pub fields_without_checksum: u64,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Number of crop-ready pictures whose coefficients were all decoded, and whose segments are where their tables
    /// state.
    pub crop_ready_pictures: u64,
    /// Number of scalable pictures from which a file can be restored, among those that were decoded.
    pub scalable_pictures: u64,
    /// Number of pictures that were decoded completely; `None` if [`VerifyOptions::decode`] is not set.
    pub decoded_pictures: Option<u64>,
    /// Number of shards whose etag is not the one in the manifest, as with copies: their bytes show whether they
    /// changed.
    pub other_etags: u64,
    /// Number of pictures that have the coefficients of their originals: the same pixels in every decoder.
    pub same_pictures: u64,
    /// Number of other fields that are the same as their originals.
    pub same_fields: u64,
    /// Number of originals without an annotation, which an annotated dataset leaves out.
    pub left_out: u64,
    /// What is wrong, in the order of the shards. If it is empty, every byte is as the manifest records.
    pub faults: Vec<VerifyFault>,
}

/// One fault of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyFault {
    /// The shard, relative to the dataset's folder; `None` if it is not the fault of a shard.
    pub shard: Option<String>,
    /// The record's key, if it is the fault of one record.
    pub record: Option<String>,
    /// What is wrong.
    pub problem: String,
}

/// Verifies the dataset in the folder `at`: sizes, the record indexes' hashes, blocks, and the checksum of every field.
///
/// # Errors
/// If there is no manifest that can be read, or the store cannot be reached. Faults of shards are not errors; the
/// report lists them.
pub async fn verify(
    at: &DatasetStore,
    options: &VerifyOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<VerifyReport, DatasetError> {
    let manifest = Arc::new(at.manifest().await?);
    let at = at.shards(&manifest)?;
    let originals = match &options.against {
        Some(against) => Some(Originals::list(against, options.fields.as_ref(), &manifest).await?),
        None => None,
    };
    let total_bytes = manifest.shards().map(|shard| shard.bytes).sum();
    let check = Arc::new(DatasetCheck { manifest, originals, decode: options.decode.clone() });
    let mut tally = VerifyTally::new(options.decode.is_some());
    let mut batches = RunningStages::start(check.stages(&at))?;
    loop {
        let (shards, records) = (tally.report.shards, tally.report.records);
        let batch = batches.next(|stats| progress(progress_of(stats, READ, total_bytes, shards, records))).await?;
        match batch {
            Some(batch) => tally.add(batch),
            None => break,
        }
    }
    Ok(tally.finish(check.originals.as_ref()))
}

/// Adds up the findings, which arrive in the order of the dataset.
struct VerifyTally {
    report: VerifyReport,
    may_be_left_out: bool,
    /// Number of faults of the shard whose fields arrive.
    shard_faults: usize,
    /// The shard whose faults are not all listed, and the number of the others.
    unlisted: Option<(Option<String>, usize)>,
    /// The result of comparing the pieces so far of the long field that arrives.
    pieces: Option<Compared>,
}

impl VerifyTally {
    fn new(decodes: bool) -> Self {
        let report = VerifyReport { decoded_pictures: decodes.then_some(0), ..VerifyReport::default() };
        Self { report, may_be_left_out: false, shard_faults: 0, unlisted: None, pieces: None }
    }

    fn add(&mut self, batch: BatchCheck) {
        let BatchCheck { mut found, more_faults, pieces, may_be_left_out, is_end_of_shard } = batch;
        pieces.into_iter().for_each(|piece| found.faults.extend(self.piece(piece)));
        let report = &mut self.report;
        report.shards += found.shards;
        report.records += found.records;
        report.fields += found.fields;
        report.fields_without_checksum += found.fields_without_checksum;
        report.bytes += found.bytes;
        report.crop_ready_pictures += found.crop_ready_pictures;
        report.scalable_pictures += found.scalable_pictures;
        if let Some(decoded) = &mut report.decoded_pictures {
            *decoded += found.decoded_pictures.unwrap_or(0);
        }
        report.other_etags += found.other_etags;
        report.same_pictures += found.same_pictures;
        report.same_fields += found.same_fields;
        self.may_be_left_out |= may_be_left_out;
        let listed = report.faults.len();
        let room = MAX_FAULTS.saturating_sub(listed).min(MAX_FAULTS_PER_SHARD.saturating_sub(self.shard_faults));
        if let more @ 1.. = found.faults.len().saturating_sub(room) + more_faults {
            let shard = found.faults.first().and_then(|fault| fault.shard.clone());
            self.unlisted.get_or_insert((shard, 0)).1 += more;
        }
        report.faults.extend(found.faults.into_iter().take(room));
        self.shard_faults += report.faults.len() - listed;
        if is_end_of_shard {
            self.shard_faults = 0;
            if let Some((shard, more)) = self.unlisted.take() {
                report.faults.push(VerifyFault { shard, record: None, problem: format!("{more} more faults") });
            }
        }
    }

    /// Adds the next piece of a field that was compared with its original. Returns the field's fault with the first piece that
    /// has one.
    fn piece(&mut self, PieceCheck { is_first, is_last, result }: PieceCheck) -> Option<VerifyFault> {
        let so_far = if is_first { None } else { self.pieces.take() };
        let (compared, fault) = match (so_far, result) {
            (Some(Compared::Different(how)), _) => (Compared::Different(how), None),
            (_, Err(fault)) => (Compared::Different(fault.problem.clone()), Some(fault)),
            (so_far, Ok(same)) => (so_far.unwrap_or(same), None),
        };
        match compared {
            Compared::SamePicture if is_last => self.report.same_pictures += 1,
            Compared::Same if is_last => self.report.same_fields += 1,
            compared => self.pieces = Some(compared),
        }
        fault
    }

    /// Returns the report. Originals that no record was compared with are faults.
    fn finish(self, originals: Option<&Originals>) -> VerifyReport {
        let mut report = self.report;
        let unclaimed: BTreeSet<&str> = originals.into_iter().flat_map(Originals::unclaimed).collect();
        if self.may_be_left_out {
            report.left_out = unclaimed.len() as u64;
            return report;
        }
        for key in unclaimed.iter().take(MAX_FAULTS_PER_SHARD) {
            let (record, problem) = (Some((*key).to_owned()), "is not there".to_owned());
            report.faults.push(VerifyFault { shard: None, record, problem });
        }
        if let Some(more @ 1..) = unclaimed.len().checked_sub(MAX_FAULTS_PER_SHARD) {
            let problem = format!("{more} more records are not there");
            report.faults.push(VerifyFault { shard: None, record: None, problem });
        }
        report
    }
}
