//! The kind `document_lengths`: how long the documents of a sequence are; a ragged column.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// The lengths of the documents of a sequence.
    "document_lengths": DocumentLengthsKeys => DocumentLengthsColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [I32];
    shape = |column| SampleShape::Rows { row: Vec::new(), max_rows: column.seq_len };
}
