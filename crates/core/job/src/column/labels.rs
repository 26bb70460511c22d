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
}
