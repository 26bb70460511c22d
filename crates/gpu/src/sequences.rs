//! What a program has to know of sequences before it uses them on a device: how long their documents are, and how many of
//! their labels count.

use spdl_client::{Batch, BatchColumn, Element};
use spdl_job::{ColumnKind, Job};
use spdl_types::DType;

/// The columns of a job that say how long documents are, and what is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceColumns {
    /// Their numbers among the job's columns.
    lengths: usize,
    labels: Option<usize>,
}

/// The lengths and the labels of a batch's sequences, in this process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// The places of each document of each sequence, as in the column `document_lengths`.
    pub document_lengths: Vec<Vec<i32>>,
    /// The labels of each sequence that are not -100, as in the first column `labels`; `None` if the job has none.
    pub loss_tokens: Option<Vec<u64>>,
}

impl SequenceColumns {
    /// Returns the columns of a job; `None` if it has no sequences, or no column `document_lengths`.
    #[must_use]
    pub fn of(job: &Job) -> Option<Self> {
        job.sequence.as_ref()?;
        let first = |is_kind: fn(&ColumnKind) -> bool| job.columns.iter().position(|column| is_kind(&column.kind));
        Some(Self {
            lengths: first(|kind| matches!(kind, ColumnKind::DocumentLengths(_)))?,
            labels: first(|kind| matches!(kind, ColumnKind::Labels(_))),
        })
    }

    /// Reads a batch of the job. Counting its labels reads them all.
    ///
    /// # Panics
    /// If the batch is of a job with other columns.
    #[must_use]
    pub fn read(self, batch: &Batch) -> Sequences {
        let column = |number: usize| batch.columns().nth(number).expect("a batch has the columns of its job");
        let lengths = column(self.lengths).samples().expect("lengths of documents are i32");
        let loss_tokens = self.labels.map(column).map(|labels| match labels.dtype() {
            DType::I32 => count(&labels, -100_i32),
            _ => count(&labels, -100_i64),
        });
        Sequences { document_lengths: lengths.map(<[i32]>::to_vec).collect(), loss_tokens }
    }
}

/// Counts the labels of each sequence that torch's `cross_entropy` does not leave out.
fn count<T: Element + PartialEq>(labels: &BatchColumn<'_>, none: T) -> Vec<u64> {
    let rows = labels.samples::<T>().expect("labels are i64 or i32");
    rows.map(|row| row.iter().map(|label| u64::from(*label != none)).sum()).collect()
}
