//! `spdl-ctl cert`: how long a certificate is valid.

use std::time::{Duration, SystemTime};

use spdl_testkit::processes::ctl;
use spdl_wire::certs::Identity;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn a_certificate_is_valid_for_a_year_or_the_given_days() {
    let folder = tempfile::tempdir().expect("a folder");
    for (days, option) in [(365, None), (7, Some("7"))] {
        let out = folder.path().join(days.to_string());
        let mut cert = ctl();
        cert.arg("cert")
            .arg("--ca")
            .arg(folder.path().join("ca"))
            .args(["--role", "worker", "--name", "w", "--out"])
            .arg(&out);
        cert.args(option.map(|days| format!("--days={days}")));
        let before = SystemTime::now();
        assert!(cert.status().expect("it runs").success(), "{cert:?}");
        let until = Identity::load(&out).expect("a certificate").valid_until();
        // A certificate has whole seconds.
        let range = before + DAY * days - Duration::from_secs(1)..=SystemTime::now() + DAY * days;
        assert!(range.contains(&until), "{until:?} is not in {range:?}");
    }
    let mut cert = ctl();
    cert.arg("cert").args(["--ca", "ca", "--role", "worker", "--name", "w", "--out", "out", "--days", "0"]);
    let output = cert.current_dir(folder.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!folder.path().join("out").exists());
}
