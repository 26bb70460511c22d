//! How far a run is, what a session that has ended came to, and what to start first, as `status` and `top` say it.

use spdl_control::coordinator::{SessionStatus, Status};

use super::is_live;
use crate::ctl::{
    audit,
    report::{count, duration_s, grouped},
};

/// Says how far the run of a session that is live is, and how long the rest takes: `12 % done, 150 of 1 200 samples ...`.
pub(crate) fn progress(session: &SessionStatus) -> String {
    let progress = &session.progress;
    let mut text = format!(
        "{} done, {} of {}",
        percent_down(progress.done),
        grouped(progress.done_samples),
        count(progress.all_samples, "sample", "samples"),
    );
    if progress.is_finished {
        return text;
    }
    text.push_str(&format!(
        "; epoch {} of {} at {}",
        grouped(progress.epoch),
        grouped(session.epochs),
        percent_down(progress.epoch_done)
    ));
    if let (Some(all_ms), Some(epoch_ms)) = (progress.left_ms, progress.epoch_left_ms) {
        let (all, epoch) = (duration_s(all_ms / 1_000), duration_s(epoch_ms / 1_000));
        text.push_str(&format!("; {all} left, {epoch} of this epoch"));
    }
    text
}

/// Says what a session came to, or why it stands still; `None` while it is live, and where another one took its place.
pub(crate) fn summary(session: &SessionStatus) -> Option<String> {
    if is_live(session) || session.superseded_by.is_some() || session.is_reset {
        return None;
    }
    if !session.ranks.iter().all(|rank| rank.left) {
        return Some("its ranks are silent".to_owned());
    }
    let progress = &session.progress;
    let end = if progress.is_finished {
        "the run is finished"
    } else {
        "it has ended before the run's last sample, and the next launch goes on from there"
    };
    let samples = count(progress.session_samples, "sample", "samples");
    let mut text = format!("{end}: {samples}");
    if let (Some(lasted_ms), Some(rate)) = (session.lasted_ms, progress.mean_samples_per_s) {
        text.push_str(&format!(" in {}, {} a second", duration_s(lasted_ms / 1_000), rounded(rate)));
    }
    if let Some(waited) = progress.waited {
        text.push_str(&format!("; its ranks waited {:.0} % of that time", 100.0 * waited));
    }
    Some(format!("{text}; `{}` checks its receipt", audit::command(&session.run)))
}

/// Says what to start where nothing has run yet: two lines for each step.
pub(crate) fn first_steps(status: &Status) -> Vec<String> {
    if status.first_steps.is_empty() {
        return Vec::new();
    }
    let steps = status.first_steps.iter().zip(1..).flat_map(|(step, number)| {
        let done = if step.is_done { " (done)" } else { "" };
        [format!("  {number}. {}{done}", step.text.trim_end_matches('.')), format!("       {}", step.command)]
    });
    std::iter::once("nothing runs here yet:".to_owned()).chain(steps).collect()
}

/// Formats a rate: with a decimal if it is small.
pub(crate) fn rounded(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// Formats the part of something that is done: `100 %` only when all is.
fn percent_down(part: f64) -> String {
    format!("{:.0} %", (100.0 * part).floor())
}
