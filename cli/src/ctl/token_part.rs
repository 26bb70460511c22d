//! Prints what became of a part of a dataset of tokens, which `tokenize --part` or `pack --to --part` has made.

use spdl_dataset::TokenPartReport;

use super::{CtlError, output::outln, report};

/// Prints how many documents are bad, and what is wrong with the first of them.
pub(crate) fn print_bad(count: u64, first: &[String]) -> Result<(), CtlError> {
    if count > 0 {
        outln!("left out: {}", report::count(count, "bad document", "bad documents"))?;
    }
    first.iter().try_for_each(|problem| outln!("  {problem}"))
}

/// Prints the report about a part.
pub(crate) fn print_part(done: &TokenPartReport, json: bool) -> Result<(), CtlError> {
    if json {
        return report::json(done);
    }
    outln!(
        "{}: part {} of {}: {} of {}, {}, {}",
        done.url,
        done.part,
        done.parts,
        report::count(done.units, "unit", "units"),
        report::grouped(done.all_units),
        report::count(done.documents, "document", "documents"),
        report::count(done.tokens, "token", "tokens"),
    )?;
    print_bad(done.bad_documents, &done.first_bad)?;
    outln!("when all parts are done: spdl-ctl merge {}", done.url)
}
