//! The kind `global_lengths`: how long the documents of a whole global batch are; a ragged column.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

/// The most numbers of a row. A step with more than its rows hold has none.
pub const MAX_GLOBAL_LENGTHS: u32 = 1 << 20;

follower! {
    /// The lengths of the documents of a global batch, divided among the rows of each rank.
    "global_lengths": GlobalLengthsKeys => GlobalLengthsColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [I32];
    shape = |_| SampleShape::Rows { row: Vec::new(), max_rows: MAX_GLOBAL_LENGTHS };
}
