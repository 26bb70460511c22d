//! The diagnoses of a session's ranks, taken together.

use std::cmp::Ordering;

use super::{Diagnosis, Presence};

/// Returns one sentence on what limits the ranks of a session: the verdict on the rank that is worst off, how many
/// ranks wait, and whether that is the fault of one worker or chance. Returns `None` if nothing was measured.
#[must_use]
pub fn session_verdict<'d>(diagnoses: impl IntoIterator<Item = &'d Diagnosis>) -> Option<String> {
    let diagnoses: Vec<&Diagnosis> = diagnoses.into_iter().collect();
    let worst = diagnoses.iter().copied().max_by(|a, b| by_need(a, b))?;
    let verdict = worst.verdict();
    let all = diagnoses.len();
    let alike: Vec<&Diagnosis> = diagnoses.iter().copied().filter(|other| is_alike(other, worst)).collect();
    if all == 1 || worst.rank.hardly_waits() && rank_in_need(worst) == 0 {
        return Some(verdict);
    }
    let (count, does) = (alike.len(), if rank_in_need(worst) == 2 { "are like that" } else { "wait" });
    let is_of_home = |other: &&Diagnosis| home(other) == home(worst);
    let who = match home(worst) {
        _ if count == all => format!("all {all} ranks {does}"),
        Some(home) if diagnoses.iter().any(|other| !is_of_home(other)) && alike.iter().all(is_of_home) => {
            let others_of_home = diagnoses.iter().filter(|other| is_of_home(other)).count() > count;
            let who = format!("{count} of {all} ranks {does}, all of them for worker `{home}`");
            if others_of_home { format!("{who}, whose other ranks do not: chance, or their samples") } else { who }
        }
        _ => format!("{count} of {all} ranks {does}"),
    };
    Some(format!("{verdict}; {who}"))
}

fn waiting(diagnosis: &Diagnosis) -> f64 {
    diagnosis.rank.waiting()
}

fn home(diagnosis: &Diagnosis) -> Option<&str> {
    diagnosis.worker.as_ref().map(|worker| worker.name.as_str())
}

/// Orders ranks by their need, the least first: ranks with a worker by how much they wait, then ranks that no worker
/// serves, then ranks that take no part.
fn by_need(a: &Diagnosis, b: &Diagnosis) -> Ordering {
    rank_in_need(a).cmp(&rank_in_need(b)).then(waiting(a).total_cmp(&waiting(b)))
}

fn rank_in_need(diagnosis: &Diagnosis) -> u8 {
    match (&diagnosis.rank.presence, &diagnosis.worker) {
        (Presence::Silent { .. } | Presence::Superseded { .. }, _) => 2,
        (Presence::Alive, None) => 1,
        (Presence::Alive, Some(_)) => 0,
    }
}

/// Returns whether a rank has the same need as the worst one.
fn is_alike(other: &Diagnosis, worst: &Diagnosis) -> bool {
    match rank_in_need(worst) {
        2 => rank_in_need(other) == 2,
        _ => rank_in_need(other) == 1 || !other.rank.hardly_waits(),
    }
}
