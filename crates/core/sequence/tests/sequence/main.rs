//! Sequences of tokens: which are frozen, what they guarantee for all documents, and what hostile lengths do.

mod balance;
mod blend;
mod exchange;
mod golden;
mod hostile;
mod properties;
// It runs the programs beside the golden vectors, which are those of the order too.
#[path = "../../../order/tests/order/twin.rs"]
mod twin;
