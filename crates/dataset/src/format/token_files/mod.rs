//! Finds the files of tokens of other programs: datatrove's, and tokens alone.

mod datatrove;
mod raw_tokens;

pub(super) use datatrove::DatatroveScan;
pub(super) use raw_tokens::RawTokensScan;
