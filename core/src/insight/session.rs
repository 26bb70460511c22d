//! The diagnoses of a session's ranks, taken together.

use super::{Diagnosis, diagnosis::NEGLIGIBLE_WAIT};

/// Says in one sentence what limits the ranks of a session: the verdict on the rank that waits most, and which others
/// wait. Returns `None` if nothing was measured.
#[must_use]
pub fn session_verdict<'d>(diagnoses: impl IntoIterator<Item = &'d Diagnosis>) -> Option<String> {
    let diagnoses: Vec<&Diagnosis> = diagnoses.into_iter().collect();
    let waiting = |diagnosis: &Diagnosis| diagnosis.rank.waiting();
    let worst = diagnoses.iter().max_by(|a, b| waiting(a).total_cmp(&waiting(b)))?;
    let late: Vec<&Diagnosis> =
        diagnoses.iter().copied().filter(|diagnosis| waiting(diagnosis) >= NEGLIGIBLE_WAIT).collect();
    let verdict = worst.verdict();
    if late.is_empty() || diagnoses.len() == 1 {
        return Some(verdict);
    }
    let (count, all) = (late.len(), diagnoses.len());
    let home = |diagnosis: &Diagnosis| diagnosis.worker.as_ref().map(|worker| worker.name.clone());
    let worst_home = home(worst);
    let is_of_home = |diagnosis: &&Diagnosis| home(diagnosis) == worst_home;
    let has_other_homes = diagnoses.iter().any(|diagnosis| !is_of_home(diagnosis));
    let who = if count == all {
        format!("all {all} ranks wait")
    } else if let Some(home) = worst_home.as_ref().filter(|_| has_other_homes && late.iter().all(is_of_home)) {
        format!("{count} of {all} ranks wait, all of them for worker `{home}`")
    } else {
        format!("{count} of {all} ranks wait")
    };
    Some(format!("{verdict}; {who}"))
}
