//! The profile as a page, light and dark.

mod timeline;

use std::fmt::Write;

use super::{
    Profile,
    measure::{Measurement, ProfiledPart},
    report,
};
use crate::ctl::{
    html::{self, escaped},
    report::{bytes, count, grouped},
};

const STYLE: &str = include_str!("style.css");

/// Writes the page.
pub(super) fn html(profile: &Profile) -> String {
    let Profile { job, samples, dataset_bytes, batch_samples, cores, memory_bytes, measurements, .. } = profile;
    let about = format!(
        "{} of {}, batches of {}; measured with {cores} of {} and {}",
        count(*samples, "sample", "samples"),
        bytes(dataset_bytes / samples.max(&1)),
        grouped((*batch_samples).into()),
        count(profile.machine_cores as u64, "core", "cores"),
        bytes(*memory_bytes),
    );
    let mut page = html::begin(&format!("Profile of job {job}"), STYLE);
    let _ = write!(page, "<p>{}</p>", escaped(&about));
    let _ = write!(page, "<p class=\"verdict\">{}</p>", escaped(&report::speed_up(profile)));
    for text in [Some(report::verdict(profile)), report::crowded(profile)].into_iter().flatten() {
        let _ = write!(page, "<p>{}</p>", escaped(&text));
    }
    page.push_str(&table(measurements));
    let _ = write!(page, "<h2>{}</h2><dl>", escaped(&report::heading(&profile.advice)));
    for (name, text) in report::advice(&profile.advice) {
        let _ = write!(page, "<dt><code>{}</code></dt><dd>{}</dd>", escaped(&name), escaped(&text));
    }
    page.push_str("</dl>");
    page.push_str(&timeline::section(measurements));
    page.push_str(html::END);
    page
}

fn table(measurements: &[Measurement]) -> String {
    let header = ["part", "samples/s", "CPU/sample", "bytes/sample", "from the store", "limit"];
    let mut table = "<h2>Parts</h2><div class=\"wide\"><table><thead><tr>".to_owned();
    header.iter().for_each(|name| {
        let _ = write!(table, "<th scope=\"col\">{name}</th>");
    });
    table.push_str("</tr></thead><tbody>");
    for found in measurements {
        let class = match found.part {
            ProfiledPart::Column => "column",
            ProfiledPart::Operation => "operation",
            _ => "part",
        };
        let [name, cells @ ..] = report::cells(found);
        let _ = write!(table, "<tr class=\"{class}\"><th scope=\"row\">{}</th>", escaped(name.trim()));
        for cell in cells.iter().chain([&report::limit(found)]) {
            let _ = write!(table, "<td>{}</td>", escaped(cell));
        }
        table.push_str("</tr>");
    }
    table + "</tbody></table></div>"
}
