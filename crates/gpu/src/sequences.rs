//! What a program has to know of sequences before it uses them on a device: how long their documents are, and how many of
//! their labels count.

use spdl_client::{Batch, BatchColumn, Element};
use spdl_job::{ColumnKind, Job, Sequence};
use spdl_types::DType;

/// The columns of a job that say how long documents are, and what is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceColumns {
    /// Their numbers among the job's columns.
    lengths: Option<usize>,
    labels: Option<usize>,
    global_lengths: Option<usize>,
    sequence: Sequence,
}

/// The lengths and the labels of a batch's sequences, in this process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// The places of each document of each sequence, as in the column `document_lengths`; `None` if the job has none.
    pub document_lengths: Option<Vec<Vec<i32>>>,
    /// The same of the global batch, as in the column `global_lengths`; `None` if the job has none, or its rows cannot hold them.
    pub global_lengths: Option<Vec<Vec<i32>>>,
    /// The labels of each sequence that are not -100, as in the first column `labels`; `None` if the job has none.
    pub loss_tokens: Option<Vec<u64>>,
}

impl SequenceColumns {
    /// Returns the columns of a job; `None` if it has no sequences, or no column of lengths.
    #[must_use]
    pub fn of(job: &Job) -> Option<Self> {
        let sequence = *job.sequence.as_deref()?;
        let first = |is_kind: fn(&ColumnKind) -> bool| job.columns.iter().position(|column| is_kind(&column.kind));
        let found = Self {
            lengths: first(|kind| matches!(kind, ColumnKind::DocumentLengths(_))),
            labels: first(|kind| matches!(kind, ColumnKind::Labels(_))),
            global_lengths: first(|kind| matches!(kind, ColumnKind::GlobalLengths(_))),
            sequence,
        };
        (found.lengths.is_some() || found.global_lengths.is_some()).then_some(found)
    }

    /// Reads a batch of the job. Counting its labels reads them all.
    ///
    /// # Panics
    /// If the batch is of a job with other columns.
    #[must_use]
    pub fn read(self, batch: &Batch) -> Sequences {
        let column = |number: usize| batch.columns().nth(number).expect("a batch has the columns of its job");
        let rows = |number: usize| -> Vec<Vec<i32>> {
            column(number).samples().expect("lengths of documents are i32").map(<[i32]>::to_vec).collect()
        };
        let global_lengths = self.global_lengths.map(|number| rows(number).concat());
        let is_held = |numbers: &Vec<i32>| !numbers.is_empty() || batch.is_empty();
        let labels = self.labels.filter(|_| self.lengths.is_some());
        let loss_tokens = labels.map(column).map(|labels| match labels.dtype() {
            DType::I32 => count(&labels, -100_i32),
            _ => count(&labels, -100_i64),
        });
        Sequences {
            document_lengths: self.lengths.map(rows),
            global_lengths: global_lengths
                .filter(is_held)
                .map(|numbers| self.sequence.documents_of_global_lengths(numbers)),
            loss_tokens,
        }
    }
}

/// Counts the labels of each sequence that torch's `cross_entropy` does not leave out.
fn count<T: Element + PartialEq>(labels: &BatchColumn<'_>, none: T) -> Vec<u64> {
    let rows = labels.samples::<T>().expect("labels are i64 or i32");
    rows.map(|row| row.iter().map(|label| u64::from(*label != none)).sum()).collect()
}
