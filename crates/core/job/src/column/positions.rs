//! The kind `positions`: the place of each token within its document.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// The place of each token of a sequence within its document.
    "positions": PositionsKeys => PositionsColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [I32, I64];
    shape = |column| SampleShape::Fixed(vec![column.seq_len]);
}
