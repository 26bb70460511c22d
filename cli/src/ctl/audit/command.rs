//! The command that checks the receipt of a run, as others show it.

/// Returns the command for a run.
pub(crate) fn of_run(run: &str) -> String {
    format!("spdl-ctl audit --run {run}")
}
