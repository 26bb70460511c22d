//! The kind `loss_mask`: which places of a sequence are learned.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// Whether each place of a sequence is learned.
    "loss_mask": LossMaskKeys => LossMaskColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [F32, U8, Bool];
    shape = |column| SampleShape::Fixed(vec![column.seq_len]);
}
