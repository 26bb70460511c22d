//! The profile as text: a table of the measurements, and the resources that the rate takes.

use super::{
    Profile,
    advice::Advice,
    measure::{Measurement, ProfiledPart},
};
use crate::ctl::{
    CtlError,
    output::outln,
    report::{bytes, count, grouped},
    status::cores,
    table::{Alignment, Table, wrapped},
};

/// Prints the profile for people.
pub(super) fn print(profile: &Profile) -> Result<(), CtlError> {
    lines(profile).iter().try_for_each(|line| outln!("{line}"))
}

/// Formats the profile in lines of at most 100 characters.
fn lines(profile: &Profile) -> Vec<String> {
    let Profile { job, samples, dataset_bytes, batch_samples, cores, machine_cores, memory_bytes, .. } = profile;
    let mut lines = wrapped(&format!(
        "job `{job}`: {} of {}, batches of {}; measured with {cores} of {} and {}",
        count(*samples, "sample", "samples"),
        bytes(dataset_bytes / samples.max(&1)),
        grouped((*batch_samples).into()),
        count(*machine_cores as u64, "core", "cores"),
        bytes(*memory_bytes),
    ));
    lines.push(String::new());
    lines.extend(table(&profile.measurements));
    lines.push(String::new());
    lines.extend(wrapped(&speed_up(profile)));
    lines.extend(wrapped(&verdict(profile)));
    lines.extend(crowded(profile).iter().flat_map(|note| wrapped(note)));
    lines.push(String::new());
    lines.extend(wrapped(&format!("{}:", heading(&profile.advice))));
    let advice = advice(&profile.advice).into_iter().map(|(name, text)| format!("{name}: {text}"));
    lines.extend(advice.flat_map(|text| wrapped(&text)));
    lines
}

/// Describes what limits the whole pipeline.
pub(super) fn verdict(profile: &Profile) -> String {
    format!("the whole pipeline, for a trainer that takes every batch at once: {}", profile.verdict)
}

/// Describes the speed-up with all cores.
pub(super) fn speed_up(profile: &Profile) -> String {
    let Profile { cores: all, speed_up, measurements, .. } = profile;
    let serial = measurements.iter().find(|found| found.part == ProfiledPart::Serial).map_or(1.0, |found| found.cores);
    format!("{} give {speed_up:.2} times the samples of {}", cores(*all), cores(serial))
}

/// The fraction of their busy time in which decoding threads have a core on a machine that does nothing else.
const QUIET: f64 = 0.85;

/// Warns that other processes used the machine, so that the rates are lower than they could be.
pub(super) fn crowded(profile: &Profile) -> Option<String> {
    let parallel = profile.measurements.iter().find(|found| found.part == ProfiledPart::Parallel)?;
    let share = parallel.core_share().filter(|share| *share < QUIET)?;
    Some(format!(
        "note: other processes use this machine: decoding threads had a core for {:.0} % of their work, so that rates are \
         lower than they could be; the CPU time per sample holds",
        100.0 * share
    ))
}

fn table(measurements: &[Measurement]) -> Vec<String> {
    let header = [
        ("", Alignment::Left),
        ("SAMPLES/S", Alignment::Right),
        ("CPU/SAMPLE", Alignment::Right),
        ("BYTES/SAMPLE", Alignment::Right),
        ("FROM STORE", Alignment::Right),
    ];
    let mut table = Table::new(header, "LIMIT");
    measurements.iter().for_each(|found| table.push(cells(found), limit(found)));
    table.lines()
}

/// Returns the name of a measurement, and its figures.
pub(super) fn cells(found: &Measurement) -> [String; 5] {
    let indent = match found.part {
        ProfiledPart::Column => "  ",
        ProfiledPart::Operation => "    ",
        _ => "",
    };
    let cores = match found.part {
        ProfiledPart::Serial | ProfiledPart::Parallel => format!(", {}", cores(found.cores)),
        _ => String::new(),
    };
    let from_store = found.store_bytes_per_s() as u64;
    [
        format!("{indent}{}{cores}", found.name),
        grouped(found.samples_per_s.round() as u64),
        format!("{} ms", milliseconds(found.cpu_ms_per_sample)),
        bytes(found.field_bytes / found.samples.max(1)),
        if from_store > 0 { format!("{}/s", bytes(from_store)) } else { "-".to_owned() },
    ]
}

/// Returns the name of what limits a measurement.
pub(super) fn limit(found: &Measurement) -> String {
    found.limit.map_or("-", spdl_insight::Limit::name).to_owned()
}

/// Writes milliseconds with three digits.
fn milliseconds(ms: f64) -> String {
    match ms {
        100.0.. => format!("{ms:.0}"),
        10.0.. => format!("{ms:.1}"),
        1.0.. => format!("{ms:.2}"),
        _ => format!("{ms:.3}"),
    }
}

/// Names the rate that the advice is for.
pub(super) fn heading(advice: &Advice) -> String {
    let why = if advice.is_given {
        ""
    } else {
        ", the most that was measured; `--rate` and `--step-ms` ask for another rate"
    };
    format!("for {} samples/s on a node{why}", rate(advice.samples_per_s))
}

fn rate(samples_per_s: f64) -> String {
    grouped(samples_per_s.round() as u64)
}

/// Returns the recommendations: each flag or subject with its reasons.
pub(super) fn advice(advice: &Advice) -> Vec<(String, String)> {
    let default = format!(
        "the default budget of {:.1} cores allows {} samples/s here",
        advice.default_cores,
        rate(advice.default_samples_per_s)
    );
    let machines = match advice.machines {
        0 | 1 => String::new(),
        machines => format!("; more than this machine has: a trainer of this rate needs the workers of {machines}"),
    };
    let (slots, used) = (bytes(advice.slab_bytes), bytes(advice.in_use_bytes));
    vec![
        (format!("--cores {}", advice.cores), format!("with a tenth in reserve{machines}; {default}")),
        (
            format!("--memory {}", size_flag(advice.memory_bytes)),
            format!("slots take {slots}, the blocks in use at most {used}"),
        ),
        ("cache".to_owned(), cache(advice)),
        ("window".to_owned(), window(advice)),
    ]
}

/// Describes whether the store or a cache gives the rate.
fn cache(advice: &Advice) -> String {
    let per_s = |bytes_per_s: f64| format!("{}/s", bytes(bytes_per_s as u64));
    let (needed, given) = (per_s(advice.store_needed_bytes_per_s), per_s(advice.store_bytes_per_s));
    let keeps = format!(
        "`--memory {}`, or a `--cache-dir` of {}, keeps all that a node reads in an epoch",
        size_flag(advice.cache_memory_bytes),
        bytes(advice.epoch_bytes)
    );
    if advice.store_bytes_per_s >= advice.store_needed_bytes_per_s {
        format!("none is needed, as the store gave {given} and the rate takes {needed}; {keeps}")
    } else {
        format!("the rate takes {needed}, and the store gave {given}: the first epoch is slower; {keeps}")
    }
}

fn window(advice: &Advice) -> String {
    match advice.smaller_window {
        Some(window) => format!(
            "`window = {window}` in the job's [order]: with {} the blocks in use do not fit what was measured with",
            advice.window
        ),
        None if advice.memory_bytes > advice.measured_memory_bytes => {
            "the slots alone do not fit what was measured with".to_owned()
        }
        None => format!("{} samples, as the job has it", grouped(advice.window)),
    }
}

/// Writes a number of bytes as a flag takes it, rounded up.
fn size_flag(number: u64) -> String {
    format!("{}MiB", number.div_ceil(1 << 20))
}
