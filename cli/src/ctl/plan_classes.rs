//! What `plan` says of the classes of a view with `sampling`: what each gives, and how often its samples come.

use serde::Serialize;
use spdl_order::view::SampledClass;

use super::{CtlError, job_file::OpenJob, output::outln, report};

/// The most classes that are all shown.
const ALL_SHOWN: usize = 16;
/// Of more classes, the number of those that are shown whose samples come least often, and of those whose come most often.
const ENDS_SHOWN: usize = 4;

/// The classes of a dataset, in the output of `plan --json`.
#[derive(Debug, Serialize)]
pub(super) struct ClassesReport {
    /// The source that has the dataset, if the job has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    by: String,
    /// Samples in an epoch of the dataset.
    samples: u64,
    classes: Vec<SampledClassReport>,
}

#[derive(Debug, Serialize)]
struct SampledClassReport {
    name: String,
    samples: u64,
    in_epoch: u64,
    /// How often each of its samples comes in an epoch, on average over epochs.
    times: f64,
}

impl ClassesReport {
    /// Returns those of each dataset of a job that has such a view.
    pub(super) fn of(open: &OpenJob) -> Vec<Self> {
        let datasets = open.datasets.iter().zip(open.job.datasets());
        let report = datasets.filter_map(|(dataset, of_job)| {
            let view = dataset.evaluated.samples.view()?;
            let sampling = view.sampling()?;
            let class = |SampledClass { name, samples, given }: &SampledClass| SampledClassReport {
                name: name.clone(),
                samples: *samples,
                in_epoch: *given,
                times: *given as f64 / *samples as f64,
            };
            Some(Self {
                source: of_job.source.map(str::to_owned),
                by: sampling.by().to_owned(),
                samples: sampling.in_epoch(),
                classes: sampling.classes().iter().map(class).collect(),
            })
        });
        report.collect()
    }

    pub(super) fn print(&self) -> Result<(), CtlError> {
        let Self { source, by, samples, classes } = self;
        let of_source = source.as_ref().map_or_else(String::new, |source| format!("source {source}: "));
        let (least, most) =
            (classes.iter().map(|class| class.in_epoch).min(), classes.iter().map(|class| class.in_epoch).max());
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
        let each = match least == most {
            true => report::grouped(least),
            false => format!("{} to {}", report::grouped(least), report::grouped(most)),
        };
        outln!(
            "{of_source}{} by `{by}`, of {each} samples each in an epoch of {}",
            report::count(classes.len() as u64, "class", "classes"),
            report::grouped(*samples)
        )?;
        let mut shown: Vec<&SampledClassReport> = classes.iter().collect();
        let between = if shown.len() > ALL_SHOWN {
            shown.sort_by(|a, b| a.times.total_cmp(&b.times));
            shown.len() - 2 * ENDS_SHOWN
        } else {
            0
        };
        for (nth, class) in shown.iter().enumerate() {
            match nth {
                ENDS_SHOWN if between > 0 => {
                    outln!("{of_source}{} classes are between these", report::grouped(between as u64))?
                }
                nth if between > 0 && (ENDS_SHOWN..ENDS_SHOWN + between).contains(&nth) => {}
                _ => class.print(&of_source)?,
            }
        }
        Ok(())
    }
}

impl SampledClassReport {
    fn print(&self, of_source: &str) -> Result<(), CtlError> {
        let Self { name, samples, in_epoch, times } = self;
        let its = report::count(*samples, "sample", "samples");
        outln!(
            "{of_source}class {name}: {} in an epoch, {times:.2} times through its {its}",
            report::grouped(*in_epoch)
        )
    }
}
