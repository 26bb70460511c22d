//! What packing the documents of a dataset has found, kept beside the manifest with the table of sequences: who packs the same again reads
//! it instead, however many documents there are.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spdl_shard::{
    manifest::{Manifest, MetadataPlace},
    sequences::{MadeSequences, SequenceTable, open_sequences, save_sequences},
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use crate::{EvaluatedSequences, LongDocuments, SequenceRequest, Undecided};

/// Version of the notes.
const VERSION: u32 = 1;
/// The longest note, in bytes: it names three documents.
const MAX_NOTE_BYTES: u64 = 1 << 20;

/// A packing that was kept.
#[derive(Clone, Debug)]
pub struct KeptSequences {
    /// The table of pools; the lengths of documents are read when they are used.
    pub table: SequenceTable,
    /// Documents that are left out because they cannot be read.
    pub unread: Undecided,
    /// The first document with tokens of which none is learned: its shard and its record.
    pub first_unlearned: Option<String>,
    /// Documents that are longer than a sequence.
    pub long: LongDocuments,
}

/// The note about a packing, which names its table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackingNote {
    version: u32,
    /// What was packed, and how.
    packed: String,
    sequences: Fingerprint,
    unread: u64,
    first_unread: Option<String>,
    first_unlearned: Option<String>,
    long_documents: u64,
    longest_tokens: u64,
    first_long: Option<String>,
}

/// A packing: of which dataset and view, and how.
#[derive(Clone, Copy)]
pub struct SequencePacking<'p> {
    /// The dataset.
    pub manifest: &'p Manifest,
    /// The fingerprint of the request's view, if it has one.
    pub view: Option<Fingerprint>,
    /// What is packed, and how.
    pub request: &'p SequenceRequest,
    /// How masks are counted, in words, if documents have some.
    pub loss: &'p str,
}

/// What is kept of a packing that was made.
#[derive(Clone, Debug)]
pub struct MadePacking {
    /// The file of its table.
    pub made: MadeSequences,
    /// The name of the note, and its content.
    name: String,
    note: Bytes,
}

impl SequencePacking<'_> {
    /// Returns in words all that decides what is found.
    fn described(&self) -> String {
        let SequenceRequest { from, params, pool_tokens, .. } = self.request;
        let view = self.view.map_or_else(|| "all".to_owned(), |view| view.to_string());
        format!("{} {view} {from:?} {params:?} {pool_tokens} {}", self.manifest.fingerprint(), self.loss)
    }

    /// Returns what was kept of it in the folder `at` of the manifest; `None` if it is not there as a whole, or cannot be read.
    pub async fn kept(&self, at: &DatasetStore) -> Option<KeptSequences> {
        let packed = self.described();
        let note = at.read(&name_of(&packed), MAX_NOTE_BYTES).await.ok()?;
        let note: PackingNote = serde_json::from_slice(&note).ok()?;
        if note.version != VERSION || note.packed != packed || note.unread > self.request.unread_allowed {
            return None;
        }
        let table = open_sequences(at, self.manifest, self.request.view.clone(), note.sequences).await.ok()?;
        Some(KeptSequences {
            table,
            unread: Undecided { records: note.unread, first: note.first_unread },
            first_unlearned: note.first_unlearned,
            long: LongDocuments {
                documents: note.long_documents,
                longest: note.longest_tokens,
                first: note.first_long,
            },
        })
    }

    /// Returns what is to be kept of it, as it was made.
    #[must_use]
    pub fn made(&self, found: &EvaluatedSequences) -> MadePacking {
        let EvaluatedSequences { made, unread, first_unlearned, long, .. } = found;
        let packed = self.described();
        let name = name_of(&packed);
        let note = PackingNote {
            version: VERSION,
            packed,
            sequences: made.fingerprint,
            unread: unread.records,
            first_unread: unread.first.clone(),
            first_unlearned: first_unlearned.clone(),
            long_documents: long.documents,
            longest_tokens: long.longest,
            first_long: long.first.clone(),
        };
        let note = serde_json::to_vec(&note).expect("plain data serialises").into();
        MadePacking { made: made.clone(), name, note }
    }
}

impl MadePacking {
    /// Keeps the packing in the folder of the dataset's manifest: the table, and then the note that names it.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub async fn keep(&self, at: &DatasetStore) -> Result<(), StoreError> {
        save_sequences(at, &self.made).await?;
        at.put(&self.name, self.note.clone()).await
    }
}

fn name_of(packed: &str) -> String {
    MetadataPlace::Hidden.path(&format!("packing-{}.json", Fingerprint::of(packed.as_bytes())))
}
