//! The kind `labels`: what a model learns at each place of a sequence.

use super::kind::{followed_tokens, follower};
use spdl_types::SampleShape;

follower! {
    /// The id that each place of a sequence has to predict.
    "labels": LabelsKeys => LabelsColumn follows "tokens", "", followed_tokens => seq_len;
    reads_field = false;
    dtypes = [I64, I32];
    shape = |column| SampleShape::Fixed(vec![column.seq_len]);
    /// For labels: whether the label of a place is the next id, as torchtitan and Megatron take them. If not, it is the id at
    /// the place, and the model shifts, as in Transformers; the first label of each document is then -100. Default: `true`.
    shifted: bool =>
    /// Whether the label of a place is the next id.
    bool = |shifted: Option<bool>| shifted.unwrap_or(true);
    /// For labels: the field with one number, or true or false, for each token of a document: 0 or false where the token is not
    /// learned. Ids that `bos` and `eos` add are learned as the token beside them. Columns `labels` and `loss_mask` of a job have the
    /// same field, or none. Default: none; all tokens are learned.
    loss_from: String =>
    /// The field that says which tokens of a document are learned, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    Option<String> = |field: Option<String>| field;
}
