//! The kind `loss_mask`: which places of a sequence are learned.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// Whether each place of a sequence is learned.
    "loss_mask": LossMaskKeys => LossMaskColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [F32, U8, Bool];
    shape = |column| SampleShape::Fixed(vec![column.seq_len]);
    /// For loss_mask: the field with one number, or true or false, for each token of a document: 0 or false where the token is not
    /// learned. Ids that `bos` and `eos` add are learned as the token beside them. Columns `labels` and `loss_mask` of a job have the
    /// same field, or none. Default: none; all tokens are learned.
    loss_from: String =>
    /// The field that says which tokens of a document are learned, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    Option<String> = |field: Option<String>| field;
}
