//! The kind `document_ids`: which document of a sequence each token is of.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// The number of the document that each token of a sequence is of.
    "document_ids": DocumentIdsKeys => DocumentIdsColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [I32];
    shape = |column| SampleShape::Fixed(vec![column.seq_len]);
}
