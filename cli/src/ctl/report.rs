//! Formats what commands print. With `--json`, the last line on standard output is one JSON object.

use serde::Serialize;
use spdl_job::{Job, JobSource, redact};
use spdl_order::{BLEND_PERIOD, BlendStage, Redaction};

use super::{CtlError, output::outln};

/// Prints `value` as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CtlError> {
    outln!("{}", serde_json::to_string(value).expect("plain data serialises"))
}

/// Formats a number with its digits in groups of three: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Formats a rate: with a decimal if it is small.
pub(crate) fn rounded(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// Formats a number with the singular or plural noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Formats a duration in its two largest units.
pub(crate) fn duration_s(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} {} h", count(days, "day", "days"), hours % 24),
    }
}

/// Formats a number of bytes with a binary unit, to three digits.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Returns what the samples of a job are called, one and many of them.
pub(crate) fn sample_words(job: &Job) -> [&'static str; 2] {
    if job.sequence.is_some() { ["sequence", "sequences"] } else { ["sample", "samples"] }
}

/// Describes the sources of a job, the stages with other weights and the redactions, each by what it is and a text, for example
/// `code: 30.0 % of the samples, 1.25 times through its 6 000 samples in an epoch, from s3://corpus/code`.
pub(crate) fn source_texts(job: &Job) -> Vec<(&'static str, String)> {
    let (has_stages, [one, many]) = (!job.stages.is_empty(), sample_words(job));
    let source = |(number, source): (usize, &JobSource)| {
        let (first, in_what) = if has_stages { (" at first", "the first epoch") } else { ("", "an epoch") };
        let text = format!(
            "{}: {:.1} % of the {many}{first}, {:.2} times through its {} in {in_what}, from {}",
            source.name,
            100.0 * source.share(),
            job.times_read(number, job.samples),
            count(source.samples, one, many),
            redact(&source.dataset)
        );
        ("source", text)
    };
    let stage = |(number, BlendStage { from, weights }): (usize, &BlendStage)| {
        let share = |(source, weight): (&JobSource, &u32)| {
            format!("{} {:.1} %", source.name, 100.0 * f64::from(*weight) / f64::from(BLEND_PERIOD))
        };
        let shares: Vec<String> = job.sources.iter().zip(weights).map(share).collect();
        let at = job.position_of(*from);
        let used_up = job.used_up_at(number);
        let cause = if used_up.is_empty() { String::new() } else { format!("; {} used up", is_or_are(&used_up)) };
        if weights.is_empty() {
            return ("end", format!("after {}, at {at}{cause}", count(*from, one, many)));
        }
        ("stage", format!("from {one} {}, {at}: {}{cause}", grouped(*from), shares.join(" + ")))
    };
    let redaction = |Redaction { from, samples }: &Redaction| {
        let count = count(samples.len(), "sample", "samples");
        ("redacted", format!("from sample {}, {}: {count}", grouped(*from), job.position_of(*from)))
    };
    let sources = job.sources.iter().enumerate().map(source).chain(job.stages.iter().enumerate().map(stage));
    sources.chain(job.redactions.iter().map(redaction)).collect()
}

/// Returns names with the verb that follows them.
fn is_or_are(names: &[&str]) -> String {
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(count(1, "rank", "ranks"), "1 rank");
        assert_eq!(count(0, "rank", "ranks"), "0 ranks");
        let durations = [(59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min"), (90_000, "1 day 1 h")];
        assert!(durations.iter().all(|(seconds, text)| duration_s(*seconds) == *text));
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(110_592), "108 KiB");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
    }
}
